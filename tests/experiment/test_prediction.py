"""What a run would take on cards: arithmetic whose parts can be checked by hand."""

import pytest

from softmax_rnn.experiment.config import resolve
from softmax_rnn.experiment.network import model_config
from softmax_rnn.experiment.prediction import CARDS, PAPER_CARD_HOURS, attention_seconds
from softmax_rnn.experiment.run_plan import plan_run

PAPER = {"recipe": "paper", "fsdp": True}


def hours(variant="softmax", processes=2, **settings):
    plan = plan_run(resolve({**PAPER, "variant": variant, **settings}), processes=processes)
    return {one["card"]: one for one in plan.on_cards}


def test_the_papers_recipe_takes_less_than_the_paper_states_and_more_than_its_products():
    result = hours()["A100 80 GB"]
    products = 6 * (275_293_184 - 32_000 * 1024) * 100_000 * 36 * 1024 / 312e12 / 3600
    assert products < result["card_hours_at_peak"] < result["card_hours"] < PAPER_CARD_HOURS
    assert result["fits"]


def test_the_papers_hours_stand_beside_its_own_run_alone():
    assert plan_run(resolve(PAPER)).paper_card_hours == PAPER_CARD_HOURS
    assert plan_run(resolve({**PAPER, "steps": 50_000})).paper_card_hours is None
    assert plan_run(resolve({**PAPER, "size": "nano"})).paper_card_hours is None


def test_faster_cards_take_less_and_more_steps_take_more():
    result = hours()
    assert [*result] == [card.name for card in CARDS]
    assert sorted((one["card_hours"] for one in result.values()), reverse=True) == [
        x["card_hours"] for x in result.values()
    ]
    assert hours(steps=50_000)["H100 SXM"]["card_hours"] == pytest.approx(result["H100 SXM"]["card_hours"] / 2)


def test_recomputing_takes_time_and_saves_memory():
    plain, again = hours()["MI300X"], hours(recompute=True)["MI300X"]
    assert again["card_hours"] > plain["card_hours"]
    assert again["memory_bytes"] < plain["memory_bytes"]


def test_an_attention_without_a_kernel_is_not_predicted():
    assert hours("gla") == {}


def test_attention_grows_with_the_context():
    config = resolve(PAPER)
    shape = model_config(config, 32_000)
    longer = resolve({**PAPER, "context": 4096, "batch_size": 36})
    assert attention_seconds(longer, shape, 18) > 3 * attention_seconds(config, shape, 18) > 0
