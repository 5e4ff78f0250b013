"""The report in a real browser: it opens, charts have marks, filters work, nothing complains."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from result_rows import failed, predicted, results

from kernels.errors import InputError
from search.commands.report import report
from search.report.page import write_report
from search.report.page.figures import roofline
from search.report.page.sections import all_of
from search.results.winners import winners

pytest.importorskip("plotly", reason="the report needs plotly")
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
TRIALS = 40  # of a shape
HARMLESS = ("WebGL", "GPU stall")  # of a machine without a GPU


def sweep() -> pd.DataFrame:
    """Two shapes on a ladder, 40 trials each, of two families; one failure whose reason is hostile."""
    rows = [
        predicted(
            9.0 + trial * M / 100, M=M, trial=trial, study=f"s{M}", BLOCK_N=(32, 64, 128)[trial % 3], num_warps=4,
            started=f"2026-11-30T10:00:{trial:02}+00:00", roofline_fraction=0.1,
            family=("fused_splitk_workspace", "fused")[trial % 2], split_k=None if trial % 2 else 14,
            REDUCE_BLOCK_M=None if trial % 2 else 1, REDUCE_BLOCK_N=None if trial % 2 else 256,
        )
        for M in (16, 32) for trial in range(TRIALS)
    ]  # fmt: skip
    hostile = failed("compile_error", reason='</script><script>document.title="broken"</script>', M=16, trial=TRIALS)
    slow = [failed("slow", reason=f"not executed: {factor} times as slow as the best", M=16) for factor in (1.51, 2.34)]
    return results(*rows, hostile, *slow)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "out.html"
    results_file = path.with_suffix(".parquet")
    sweep().to_parquet(results_file)
    report(sweep(), path, against=results_file, gains=["one step of a model: 2.0 ms before, 1.5 ms after"])
    return path


@pytest.fixture(scope="module")
def browser(page: Path) -> Iterator[Any]:
    if BROWSER is None or DRIVER is None:
        pytest.skip("no chromium and chromedriver")
    webdriver = pytest.importorskip("selenium.webdriver")
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1280,900"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    driver.get(page.as_uri())
    yield driver
    driver.quit()


def count(browser: Any, selector: str) -> int:
    return int(browser.execute_script("return document.querySelectorAll(arguments[0]).length", selector))


def test_the_page_needs_no_network(page: Path) -> None:
    text = page.read_text(encoding="utf-8").partition("<script>")[0]
    assert "http" not in text and "src=" not in text


def test_charts_have_marks(browser: Any) -> None:
    assert count(browser, "#search-history .scatterlayer .point") >= TRIALS
    assert count(browser, "#search-families .boxlayer .box") == 2
    assert count(browser, "#search-knobs .parcoords .axis") >= 2
    assert count(browser, "#search-importance .barlayer .point") >= 1
    assert count(browser, "#roofline-chart .scatterlayer .point") == 4  # two winners, and the roof above each
    assert count(browser, "#ladder-0 .scatterlayer .point") == 2


def test_only_families_that_won_can_be_filtered(browser: Any) -> None:
    boxes = browser.find_elements("css selector", "input[name=family]")
    assert [box.get_attribute("value") for box in boxes] == ["fused_splitk_workspace"]


def test_what_the_winner_is_not_told_from_is_listed_as_often_as_it_is_counted() -> None:
    trials = (predicted(10.0, num_warps=8, predicted_tie=0.05), predicted(10.4), predicted(10.6, num_warps=2))
    frame = results(*trials)
    listed = all_of(frame, winners(frame), None, ()).shapes["gfx950-256cu 16x2112x7168"]["ties"]
    assert isinstance(listed, str) and listed.startswith("<p>2 as good as the winner, or within 0.5 % of it</p>")
    assert "warps 8" in listed and "warps 2" not in listed


@pytest.mark.parametrize("Ms", [(16,), (16, 17), (1, 4096)])
def test_an_axis_has_several_numbers(Ms: tuple[int, ...]) -> None:
    best = winners(results(*(predicted(10.0 + M, M=M, roofline_fraction=0.1) for M in Ms)))
    for axis in ("xaxis", "yaxis"):
        assert len(roofline(best)["layout"][axis]["tickvals"]) >= 2


def test_a_filter_hides_rows_and_says_how_many_are_left(browser: Any) -> None:
    box = browser.find_element("id", "find")
    box.send_keys("32x")
    visible = "return [...document.querySelectorAll('#winners tbody tr')].filter(row => !row.hidden).length"
    assert browser.execute_script(visible) == 1
    assert browser.find_element("id", "count").text == "1 of 2"
    box.clear()
    box.send_keys(" ")
    assert browser.execute_script(visible) == 2
    family = browser.find_element("css selector", "input[value=fused_splitk_workspace]")
    family.click()
    assert browser.execute_script(visible) == 0
    family.click()


def test_a_click_on_a_row_shows_its_search(browser: Any) -> None:
    browser.execute_script("document.querySelectorAll('#winners tbody tr')[1].click()")
    chosen = browser.execute_script("return document.getElementById('shape').value")
    assert chosen == "gfx950-256cu 32x2112x7168"
    browser.execute_script("document.querySelectorAll('#winners tbody tr')[0].click()")


def test_text_of_the_results_is_text(browser: Any) -> None:
    assert browser.title == "MXFP4 GEMM search on gfx950-256cu"
    assert "</script>" in browser.find_element("id", "failures").text


def test_reasons_that_differ_in_a_number_are_one_line(browser: Any) -> None:
    lines = browser.find_element("id", "failures").text.splitlines()
    assert [line for line in lines if "slow" in line] == ["slow fused not executed: … times as slow as the best 2"]


def test_comparison_gain_and_environment_are_there(browser: Any) -> None:
    assert "2 shapes in sum" in browser.find_element("id", "against").text
    assert browser.find_element("id", "gain").text == "one step of a model: 2.0 ms before, 1.5 ms after"
    assert "3.9.0" in browser.find_element("id", "environment").text


@pytest.mark.parametrize("width", [1280, 800])
def test_nothing_is_wider_than_the_window(browser: Any, width: int) -> None:
    browser.set_window_size(width, 900)
    widths = "return [innerWidth, document.documentElement.scrollWidth]"
    deadline_s = time.monotonic() + 10  # charts follow the window a moment later
    while (sizes := browser.execute_script(widths))[1] > sizes[0] and time.monotonic() < deadline_s:
        time.sleep(0.2)
    assert sizes[1] <= sizes[0]
    cut = "return [...document.querySelectorAll('.wide')].filter(box => box.scrollWidth > box.clientWidth).length"
    assert browser.execute_script(cut) == 0  # no column of a table is out of sight


def test_the_console_has_no_errors(browser: Any) -> None:
    lines = [entry["message"] for entry in browser.get_log("browser")]
    assert [line for line in lines if not any(word in line for word in HARMLESS)] == []


def test_no_trials_and_no_plotly_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="the results hold no trial; run `sweep` first"):
        write_report(results(), tmp_path / "out.html")
    monkeypatch.setattr("search.report.page.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"the report needs plotly; pip install '\.\[report\]'"):
        write_report(sweep(), tmp_path / "out.html")
