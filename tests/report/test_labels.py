from softmax_rnn.report import labels
from softmax_rnn.report.study_page import study_page

from .study_results import L2_NORM, language, results


def test_one_function_names_variants_in_every_table_and_chart(monkeypatch):
    monkeypatch.setattr(labels, "label", lambda name: {L2_NORM: "softmax_l2"}.get(name, name))
    page = study_page(results(language({"softmax": 1.8, L2_NORM: 1.79}, seeds=2, panels=["kjv"])))
    shown = {table.id: str(table.rows) for table in page.tables() if table.id != "runs-table"}
    assert any("softmax_l2" in text for text in shown.values())
    assert [name for name, text in shown.items() if L2_NORM in text] == []
