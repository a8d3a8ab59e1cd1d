from __future__ import annotations

import json
import sys
from html.parser import HTMLParser
from threading import Thread

import pytest
import torch
from torch.tpu import EagerMode

from tests.device.lines import line_of
from tests.device.process import run
from torus import _C, runtime
from torus.backend.device.advice import advise
from torus.backend.device.amounts import show_bytes
from torus.backend.device.explain import Report
from torus.backend.eager.report import Flush, OpRecord, SegmentRecord, shorten


@pytest.fixture(autouse=True)
def _restored():
    mode, fusing, fallback = torch.tpu.eager_mode, torch.tpu.fusing, torch.tpu.cpu_fallback
    torch.tpu.eager_mode, torch.tpu.fusing = EagerMode.DEFER_AND_FUSE, "foreground"
    yield
    torch.tpu.synchronize()
    torch.tpu.eager_mode, torch.tpu.fusing, torch.tpu.cpu_fallback = mode, fusing, fallback


@pytest.fixture
def x():
    tensor = torch.arange(16.0).reshape(4, 4).to("tpu")
    torch.tpu.synchronize()
    return tensor


# What is in a report


def double_and_read(x):
    y = x + x
    return y.relu().sum().item()


def test_a_flush_names_its_cause_its_lines_and_its_ops(x):
    with torch.tpu.explain() as report:
        double_and_read(x)
    (flush,) = report.flushes
    assert (flush.cause, flush.place) == ("host read", line_of(double_and_read, ".item()"))
    assert [(op.name, op.place) for segment in flush.segments for op in segment.ops] == [
        ("aten::add.Tensor", line_of(double_and_read, "y = x + x")),
        ("aten::relu", flush.place),
        ("aten::sum", flush.place),
    ]
    assert (flush.how, flush.ops, flush.programs, flush.fusing) == ("fused", 3, 1, "foreground")
    assert (flush.bytes_in, flush.bytes_out) == (64, 64 + 4)  # y still lives, what relu gave does not
    assert 0 < flush.seconds < report.seconds


def test_a_program_is_made_once(x):
    torch.tpu.cache.clear(disk=False)
    with torch.tpu.explain() as report:
        for _ in range(2):
            double_and_read(x)
    first, second = report.flushes
    assert not first.known and first.compiles + first.cache_hits == 1 and first.origin in str(report)
    assert second.known and second.compiles + second.cache_hits == 0 and second.origin == "reused"


def test_the_end_of_the_block_runs_nothing(x):
    with torch.tpu.explain() as report:
        y = x + 1
    assert _C.pending_ops(y) is not None
    assert report.flushes == [] and "No recorded ops ran in this block" in str(report)
    y.cpu()
    assert report.flushes == []


def test_a_function_is_run_to_its_end(x):
    earlier = x * 3
    report = torch.tpu.explain(lambda a, *, b: a + b, x, b=x)
    assert _C.pending_ops(report.result) is None and torch.equal(report.result.cpu(), (x + x).cpu())
    (flush,) = report.flushes
    assert flush.cause == "synchronize" and [op.name for op in flush.segments[0].ops] == ["aten::add.Tensor"]
    assert flush.place.startswith(__file__)
    assert _C.pending_ops(earlier) is None


def test_an_error_ends_the_report(x):
    report = torch.tpu.explain()
    with pytest.raises(KeyError), report:
        raise KeyError
    double_and_read(x)
    assert report.flushes == []
    assert "test_explain.py" not in torch.tpu.show(x + 1)  # lines are not kept any more


def test_what_explain_refuses():
    with pytest.raises(TypeError, match="expected a function to call, got int"):
        torch.tpu.explain(3)
    with pytest.raises(TypeError, match="the function to call first"):
        torch.tpu.explain(a=3)
    with torch.tpu.explain() as report:
        pass
    with pytest.raises(RuntimeError, match="of one block"), report:
        pass


def test_reports_may_be_nested(x):
    with torch.tpu.explain() as outer:
        with torch.tpu.explain() as inner:
            double_and_read(x)
        double_and_read(x)
    assert (len(outer.flushes), len(inner.flushes)) == (2, 1)


def test_other_threads_are_in_the_report(x):
    with torch.tpu.explain() as report:
        thread = Thread(target=double_and_read, args=(x,))
        thread.start()
        thread.join()
    assert [flush.place for flush in report.flushes] == [line_of(double_and_read, ".item()")]


@pytest.mark.parametrize("mode", [EagerMode.DEFER_NEVER, EagerMode.DEFER_NEVER_AND_LAUNCH_BLOCKING])
def test_a_strict_mode_says_so_and_counts(x, mode):
    torch.tpu.eager_mode = mode
    report = torch.tpu.explain(double_and_read, x)
    assert not report.recorded and report.flushes == []
    assert "Nothing is recorded in this mode" in str(report)
    assert "torch.tpu.EagerMode.DEFER_AND_FUSE" in report.note.replace("\n", " ")
    assert report.counters["programs"] == 3 and report.counters["host_reads"] == 1
    assert "programs 3" in str(report) and "host_reads 1" in str(report)
    assert "What to change" not in str(report)


def test_a_mode_chosen_inside_of_the_block_counts(x):
    torch.tpu.eager_mode = EagerMode.DEFER_NEVER
    with torch.tpu.explain() as report, torch.tpu.set_eager_mode(EagerMode.DEFER_AND_FUSE):
        double_and_read(x)
    assert report.recorded and report.note == "" and "1 flush of 3 ops in 1 program" in str(report)


def test_counters_are_of_the_block(x):
    double_and_read(x)
    before = torch.tpu.counters()
    with torch.tpu.explain() as report:
        double_and_read(x)
        assert report.counters["flushes"] == 1
    double_and_read(x)
    assert before["flushes"] > 0 and report.counters["flushes"] == 1 and set(report.counters) == set(before)


def test_counters_reset_in_the_block_are_not_negative(x):
    runtime.counters.compiles += 1
    double_and_read(x)
    with torch.tpu.explain() as report:
        torch.tpu.reset_counters()
        double_and_read(x)
    assert min(report.counters.values()) >= 0 and report.flushes[0].compiles >= 0


def test_the_report_starts_nothing():
    code = """
        import torch, torus
        with torch.tpu.explain() as report:
            pass
        print(report.recorded, torch.tpu.is_initialized())
    """
    assert run(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0") == "False False"


# As text


def test_the_table_has_a_row_for_each_flush_and_a_total(x):
    with torch.tpu.explain() as report:
        for _ in range(2):
            double_and_read(x)
        y = x * 2
        torch.tpu.synchronize()
    lines = str(report).splitlines()
    rows = [line.split() for line in lines if "test_explain.py:" in line and line.lstrip()[0].isdigit()]
    assert [row[0] for row in rows] == ["0", "1", "2"]
    assert rows[0][1:7] == ["host", "read", shorten(report.flushes[0].place).split()[0], "in", "double_and_read", "3"]
    assert rows[1][8:10] == ["fused,", "reused"] and rows[2][1] == "synchronize"
    (total,) = (line.split() for line in lines if line.split()[:1] == ["total"])
    assert total[1:3] == ["7", "3"]
    assert lines[0].startswith("3 flushes of 7 ops in 3 programs")
    del y


def test_a_long_table_is_cut(x):
    flush = made_up("host read", "a.py:1 in f")
    text = str(report_of([flush] * 100))
    assert "... 40 more, see .html() or .flushes ..." in text
    assert sum("a.py:1 in f" in line and line.lstrip()[0].isdigit() for line in text.splitlines()) == 60


def test_places_are_short():
    assert shorten("/a/b/runs/train.py:12 in Model.step") == "runs/train.py:12 in Model.step"
    assert shorten("/train.py:12 in <module>") == "/train.py:12 in <module>"
    assert shorten("<stdin>:1 in <module>") == "<stdin>:1 in <module>"
    assert shorten("") == ""


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1.5 * 2**20, "1.5 MiB"), (2**52, "4096.0 TiB")],
)
def test_bytes_have_units(count, text):
    assert show_bytes(count) == text


# Advice


def made_up(cause="host read", place="/w/a.py:1 in f", names=("aten::add.Tensor",), how="fused", **fields):
    ops = tuple(OpRecord(name, f"/w/a.py:{i + 2} in f") for i, name in enumerate(names))
    values = {"programs": 1, "known": True, "bytes_in": 64, "bytes_out": 64, "start": 1.0, "end": 2.0} | fields
    return Flush(cause, place, (SegmentRecord(ops, how),), **values)


def report_of(flushes):
    with torch.tpu.explain() as report:
        pass
    report.flushes = list(flushes)
    return report


def kinds(flushes, fallbacks=None):
    return [advice.kind for advice in advise(flushes, fallbacks or {})]


def read_in_a_loop(x):
    total = 0.0
    for i in range(5):
        total += (x * i).sum().item()
    return total


def test_a_read_in_a_loop_is_named(x):
    read_in_a_loop(x)
    report = torch.tpu.explain(read_in_a_loop, x)
    (advice,) = report.advice
    assert (advice.kind, advice.place) == ("repeated flush", line_of(read_in_a_loop, ".item()"))
    assert advice.flushes == (0, 1, 2, 3, 4)
    assert f"{shorten(advice.place)} reads a value on the host" in advice.text and "5 times" in advice.text
    assert "torch.stack(values).cpu()" in " ".join(str(report).split())


def test_what_is_done_once_or_twice_is_no_loop(x):
    double_and_read(x)
    with torch.tpu.explain() as report:
        for _ in range(2):
            double_and_read(x)
    assert report.advice == [] and "no line of the program stands out" in str(report)


def test_a_cause_is_explained_once():
    flushes = [made_up(place=f"/w/a.py:{line} in f") for line in (1, 2) for _ in range(3)]
    first, second = advise(flushes, {})
    assert "Keep the values on the device" in first.text and "Keep the values" not in second.text
    assert "w/a.py:2 in f does so too, 3 times" in second.text


def test_causes_that_cannot_be_avoided_are_no_advice():
    assert kinds([made_up(cause) for cause in ("end of backward", "size", "exit") for _ in range(5)]) == []
    assert kinds([made_up("synchronize")] * 3) == ["repeated flush"]


def more_ops_each_time(x):
    for turns in range(5):
        y = x
        for _ in range(turns + 1):
            y = y.cos()
        y.sum().item()


def test_recordings_that_grow_are_named(x):
    torch.tpu.cache.clear(disk=False)  # nobody has seen these recordings
    report = torch.tpu.explain(more_ops_each_time, x)
    (advice,) = (advice for advice in report.advice if advice.kind == "new each time")
    assert advice.place == line_of(more_ops_each_time, ".item()") and advice.flushes == (0, 1, 2, 3, 4)
    changed = shorten(line_of(more_ops_each_time, "y.cos()"))
    assert f"op 4 is aten::cos at {changed} instead of aten::sum" in advice.text
    assert "record the same ops" in advice.text


def larger_each_time():
    for rows in range(5):
        torch.ones(rows + 33, 3, device="tpu").sum().item()


def test_shapes_that_grow_are_named(x):
    torch.tpu.cache.clear(disk=False)
    report = torch.tpu.explain(larger_each_time)
    (advice,) = (advice for advice in report.advice if advice.kind == "new each time")
    assert (
        advice.place == line_of(larger_each_time, ".item()")
        and "float32[37, 3] instead of float32[36, 3]" in advice.text
    )


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            lambda i: {"names": ["aten::add.Tensor"] * (i + 1)},
            "5 ops instead of 4, from aten::add.Tensor at w/a.py:6 in f",
        ),
        (
            lambda i: {"names": ["aten::cos", "aten::sin"][: i % 2 + 1][-1:]},
            "op 0 is aten::cos at w/a.py:2 in f instead of",
        ),
        (lambda i: {"bytes_in": 64 * (i + 1)}, r"the same 1 op on other arrays (320 B instead of 256 B)"),
        (lambda i: {"bytes_out": 64 * (i + 1)}, r"the same 1 op with other results (320 B instead of 256 B)"),
        (lambda i: {}, "the same 1 op on as many bytes"),
    ],
)
def test_what_differs(changes, text):
    flushes = [made_up("end of backward", known=False, **changes(i)) for i in range(5)]
    (advice,) = advise(flushes, {})
    assert advice.kind == "new each time" and text in advice.text


def test_a_start_that_is_new_is_no_advice():
    known = [made_up("end of backward")] * 4
    assert kinds([made_up("end of backward", known=False)] * 3 + known) == []
    assert kinds([made_up("end of backward", known=False)] * 4 + known) == []
    assert kinds([made_up("end of backward", known=False)] * 5 + known) == ["new each time"]


def test_compiling_each_time_does_not_come_once():
    new = made_up("end of backward", known=False, compiles=1, fusing="foreground")
    assert kinds([new] * 3) == ["compiling"]
    assert kinds([new] * 4) == ["new each time"]


def test_ops_that_are_never_fused(x):
    torch.tpu.fusing = "never"
    with torch.tpu.explain() as report:
        double_and_read(x)
    assert (report.flushes[0].how, report.flushes[0].programs) == ("op by op", 3)
    (advice,) = report.advice
    assert advice.kind == "op by op" and advice.text.startswith("3 ops in 1 flush ran one by one")
    assert 'torch.tpu.fusing is "never"' in advice.text


def test_ops_that_wait_for_the_compiler():
    alone = made_up("end of backward", names=["aten::cos"] * 7, how="op by op")
    fused = made_up("end of backward")
    assert "Run more turns before you measure" in advise([alone], {})[0].text
    assert "Later ones at the same lines ran fused" in advise([alone, alone, fused], {})[0].text
    elsewhere = made_up("end of backward", "/w/b.py:1 in g", how="op by op")
    assert "1 of them came before fused ones" in advise([alone, fused, elsewhere], {})[0].text
    assert advise([alone, alone, fused], {})[0].flushes == (0, 1)
    assert kinds([fused, made_up(how="one program"), made_up(how="not needed")]) == []


def test_ops_whose_fused_program_failed():
    (advice,) = advise([made_up(how="op by op", fusing="foreground")], {})
    assert "FusionWarning" in advice.text


def test_time_that_went_into_compiling():
    compiled = made_up(compiles=1, fusing="foreground", end=3.5)
    (advice,) = advise([compiled, made_up()], {})
    assert advice.kind == "compiling" and advice.text.startswith("2.50 s of the 3.50 s in flushes went into 1 flush")
    assert kinds([compiled, made_up(end=9.0)]) == []  # the other flush took most of the time


def test_fallbacks_are_named(x):
    torch.tpu.cpu_fallback = "silent"
    report = torch.tpu.explain(torch._dirichlet_grad, x, x, x)
    assert report.fallbacks == {"aten::_dirichlet_grad": 1}
    assert "Ran on the CPU: aten::_dirichlet_grad 1" in str(report)
    (flush,) = torch.tpu.explain(lambda: torch._dirichlet_grad(x + 1, x, x)).flushes
    assert flush.cause == "op on the CPU"
    assert any(a.kind == "fallback" and "aten::_dirichlet_grad has no lowering" in a.text for a in report.advice)


def test_how_a_flush_ran():
    def how(*segments):
        return Flush("size", "", tuple(SegmentRecord((), h) for h in segments), 1, True, 0, 0, 0.0, 0.0).how

    assert how("fused", "one program", "not needed") == "fused"
    assert how("fused", "op by op") == "mixed"
    assert how("op by op", "one program") == "op by op"
    assert how("one program", "not needed") == "one program"
    assert how("not needed") == how() == "not needed"


# For programs


def test_json_reads_back(x):
    torch.tpu.cpu_fallback = "silent"
    report = torch.tpu.explain(lambda: (read_in_a_loop(x), torch._dirichlet_grad(x, x, x)))
    values = json.loads(report.json())
    assert values == report.to_dict() == json.loads(report.json(indent=2))
    again = Report.from_dict(values)
    assert again.to_dict() == values and again.advice == report.advice and again.result is None
    assert [f.segments for f in again.flushes] == [f.segments for f in report.flushes]


def test_the_documented_keys(x):
    values = torch.tpu.explain(double_and_read, x).to_dict()
    assert list(values) == ("version mode fusing recorded seconds counters fallbacks flushes advice".split())
    (flush,) = values["flushes"]
    assert set(flush) == set(
        "number cause place how origin ops programs known compiles cache_hits fusing bytes_in bytes_out start end "
        "seconds segments".split()
    )
    assert 0 <= flush["start"] <= flush["end"] <= values["seconds"]
    documented = Report.to_dict.__doc__
    assert all(f"``{key}``" in documented for key in [*values, *flush])


def test_another_version_is_refused():
    with pytest.raises(ValueError, match="expected a report of version 1, got version 2"):
        Report.from_dict({"version": 2})


# As a page


class Page(HTMLParser):
    """Fails on tags that do not match; keeps the attributes of all tags, and the text."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.words = [], [], ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words += data

    def having(self, tag, name):
        return [attributes[name] for kind, attributes in self.tags if kind == tag and name in attributes]


def test_the_page_shows_each_flush(x, tmp_path):
    report = torch.tpu.explain(read_in_a_loop, x)
    path = report.html(tmp_path / "report.html")
    assert path == tmp_path / "report.html" and path.read_text() == report.html()
    page = Page(report.html())
    targets, ids = set(page.having("a", "href")), page.having("tr", "id")
    assert ids == [f"flush-{i}" for i in range(len(report.flushes))] and targets == {f"#{i}" for i in ids}
    bars = [attributes for tag, attributes in page.tags if attributes.get("class", "").startswith("bar ")]
    assert {bar["class"] for bar in bars} == {"bar fused"} and len(bars) == len(report.flushes)
    assert "aten::mul.Tensor" in bars[0]["title"] and shorten(line_of(read_in_a_loop, ".item()")) in bars[0]["title"]
    assert all(advice.text in page.words for advice in report.advice)


def test_the_page_needs_nothing_else(x):
    text = torch.tpu.explain(read_in_a_loop, x).html()
    assert "http" not in text and "src=" not in text and "@import" not in text and "url(" not in text
    assert "prefers-color-scheme: dark" in text and "color-scheme: light dark" in text


def test_the_page_escapes_names():
    text = report_of([made_up(place='/w/a"b.py:1 in <lambda>', names=["a<b"])]).html()
    assert "<lambda>" not in text and "&lt;lambda&gt;" in text
    assert '/w/a"b.py' not in text and "a<b" not in text
    Page(text)


def test_the_page_of_a_strict_mode(x):
    torch.tpu.eager_mode = EagerMode.DEFER_NEVER
    page = Page(torch.tpu.explain(double_and_read, x).html())
    assert "Nothing is recorded in this mode" in page.words and "programs3" in page.words.replace("\n", "")
    assert page.having("tr", "id") == []


def test_a_bar_lies_where_its_flush_was():
    report = report_of([made_up(start=0.25, end=0.375), made_up(start=0.5, end=1.0, how="op by op")])
    values = report.to_dict() | {"seconds": 1.0}
    for flush, (start, end) in zip(values["flushes"], ((0.25, 0.375), (0.5, 1.0))):
        flush.update(start=start, end=end)
    styles = Page(Report.from_dict(values).html()).having("a", "style")
    assert styles == ["left:25.0000%;width:12.5000%", "left:50.0000%;width:50.0000%"]


def test_the_names_are_functions():
    assert callable(torch.tpu.explain) and callable(torch.tpu.show)
    assert {"explain", "show"} <= set(torch.tpu.__all__)
    assert not callable(sys.modules["torus.backend.device.explain"])
