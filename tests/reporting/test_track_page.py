"""The page's script in a browser: what it draws, sorts, finds and chooses. Skipped where there is none."""

import json
import re
import shutil
import subprocess
from html import unescape

import numpy as np
import pytest

from bigbird_dna.genome.chromatin.tracks import Track
from bigbird_dna.reporting.tracks import auc_report

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
EVIL = "</script><img src=x onerror='document.title=1'>"
NAMES = ["bravo", "alfa", EVIL, "delta"]

# What a reader does, and what the page shows then; `all` and `names` say what is there.
SCRIPT = """
const all = (chosen) => Array.from(document.querySelectorAll(chosen));
const shown = () => all("#table tbody tr").filter((row) => !row.hidden);
const names = () => shown().map((row) => row.cells[1].textContent);
const legend = () => all("#legend li").map((item) => item.childNodes[1].textContent);
const found = {};
found.figures = all("svg.figure").length;
found.dots = all("#strips .dot title").map((title) => title.textContent);
found.points = all("#plots path.curve").map((path) => path.getAttribute("d").match(/[\\d.]+ ?[\\d.]*$/)[0]);
found.first = legend();
const heads = all("#table thead button");
heads[0].click(); found.byName = names();
heads[2].click(); found.byArea = names();
heads[2].click(); found.byAreaUp = names();
const search = document.getElementById("search");
search.value = "DELT"; search.dispatchEvent(new Event("input")); found.search = names();
search.value = ""; search.dispatchEvent(new Event("input"));
all("input.group")[0].click(); found.group = names();
all("input.group")[0].click();
document.getElementById("clear").click(); found.none = [legend(), all("tr.on").length];
all("#table tbody tr")[0].cells[1].click(); found.row = legend();
all("#strips .dot")[1].dispatchEvent(new MouseEvent("click", { bubbles: true })); found.dot = legend();
all("#legend button")[0].click(); found.removed = legend();
document.getElementById("default").click(); found.again = legend();
document.body.replaceChildren();
document.body.textContent = `FOUND${JSON.stringify(found)}END`;
"""


@pytest.fixture
def page(tmp_path):
    """Four tracks of two groups, compared with another predictor; the last has no positives."""
    rng = np.random.default_rng(0)
    labels = (rng.random((200, 4)) < [0.5, 0.3, 0.2, 0]).astype(np.uint8)
    scores = rng.normal(size=labels.shape) + labels * [1, 2, 4, 1]
    tracks = [Track(name, group) for name, group in zip(NAMES, ("TF", "TF", "HM", "HM"), strict=True)]
    report = auc_report(*(scores, labels, tmp_path / "out"), tracks=tracks, compare={"other": -scores})
    return report, (tmp_path / "out/report.html").read_text()


@pytest.mark.skipif(BROWSER is None, reason="needs Chromium")
def test_page_in_a_browser(page, tmp_path):
    report, text = page
    # The page's policy would not let this script run.
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    path = tmp_path / "page.html"
    path.write_text(text.replace("</body>", f"<script>{SCRIPT}</script></body>"))
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    command += [f"--user-data-dir={tmp_path / 'browser'}", path.as_uri()]
    dom = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    assert "<title>AUROC by track</title>" in dom
    found = json.loads(unescape(dom.partition("FOUND")[2].partition("END")[0]))
    assert found["figures"] == 6
    area = report.tracks["auroc"]
    assert found["dots"][:3] == [f"{NAMES[i]}: {area[i]:.3f}" for i in range(3)]
    # ROC ends in the corner at the right top, precision at recall 1.
    assert found["points"] == ["384.0 8.0", "384.0 8.0", "384.0", "384.0"]
    data = json.loads(text.partition('id="data">')[2].partition("</script>")[0])
    assert found["first"] == found["again"] == [NAMES[i] for i in data["chosen"]]
    assert found["byName"] == [EVIL, "alfa", "bravo", "delta"]
    order = [NAMES[i] for i in area.dropna().sort_values(ascending=False).index]
    assert found["byArea"] == [*order, "delta"]
    assert found["byAreaUp"] == [*order[::-1], "delta"]
    assert found["search"] == ["delta"]
    assert set(found["group"]) == {EVIL, "delta"}
    assert found["none"] == [[], 0]
    lowest = order[-1]
    assert found["row"] == [lowest]
    assert found["dot"] == [lowest, "alfa"] and found["removed"] == ["alfa"]
