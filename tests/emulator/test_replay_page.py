"""The page of a replay, in a real browser; skipped where there is none."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_replay import KEYS, LADDER, dtype_of

import gpureduce

pytest.importorskip("selenium", reason="the extra `browser` is not installed")
Keys = pytest.importorskip("selenium.webdriver").Keys
DRIVER = shutil.which("chromedriver")
pytestmark = [
    pytest.mark.skipif(DRIVER is None, reason="no chromedriver (Debian: chromium-driver)"),
    pytest.mark.xdist_group("browser"),
]


class Browser:
    """A headless Chromium, with the log of a page's requests and console messages."""

    def __init__(self, wide: int = 1200, scheme: str = "light") -> None:
        from selenium import webdriver

        options = webdriver.ChromeOptions()
        for argument in ("--headless=new", "--no-sandbox", f"--window-size={wide},900"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
        self.driver.set_script_timeout(60)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        size = {"width": wide, "height": 900, "deviceScaleFactor": 1, "mobile": wide < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def open(self, path: Path, tail: str = "") -> None:
        self.driver.get(f"{path.as_uri()}{tail}")
        self.wait()

    def wait(self) -> None:
        self.driver.execute_async_script(
            "const done = arguments[0];"
            "const look = () => (page.ready ? done() : setTimeout(look, 5));"
            "look();"
        )

    def run(self, script: str) -> Any:
        return self.driver.execute_script(script)

    def press(self, *keys: str) -> None:
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()

    def requests(self) -> list[str]:
        """What was asked for since the last call, other than the page itself."""
        log = [one["message"] for one in self.driver.get_log("performance")]
        return [
            one
            for one in log
            if "Network.requestWillBeSent" in one and "http" in one.split('"url":"')[1][:4]
        ]

    def messages(self) -> list[str]:
        return [one["message"] for one in self.driver.get_log("browser")]


@contextlib.contextmanager
def opened(*how: Any) -> Iterator[Browser]:
    browser = Browser(*how)
    try:
        yield browser
    finally:
        browser.driver.quit()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with opened() as one:
        yield one


# Plays all steps forwards, and then back to the first one.
ALL_STEPS = """
const player = longest(), wrong = [];
for (let i = 0; i < player.count; i++) {
  goTo(i, player);
  const step = player.model.step, items = player.scene.items;
  const runs = items.filter((one) => one.status === "runs" && one.warp === step.warp);
  const arrows = items.filter((one) => one.role === "arrow");
  const said = player.root.querySelector(".sentence").textContent;
  if (String(runs.map((one) => one.lane)) !== String(step.lanes)) wrong.push([i, "lanes"]);
  const moves = ACCESSES.includes(step.kind) && !player.scene.hidden;
  if (moves && arrows.length !== step.lanes.length) wrong.push([i, "arrows"]);
  if (!said.endsWith(step.sentence)) wrong.push([i, "sentence"]);
}
const memory = player.model.memory;
const words = () => JSON.stringify([...memory].map(([key, held]) => [key, held.value]));
const counters = Object.fromEntries(player.model.counters), last = words();
for (let i = player.count - 1; i >= 0; i--) goTo(i, player);
const first = player.model.undo.length;
goTo(player.count - 1, player);
return { wrong, counters, first, same: last === words() };
"""


@pytest.mark.parametrize("name", LADDER)
def test_all_steps_of_a_strategy(name: str, browser: Browser, tmp_path: Path):
    n = 40 if name in ("exact", *KEYS) else 130
    shown = gpureduce.replay(name, n, dtype=dtype_of(name))
    shown.save(tmp_path / "page.html")
    browser.open(tmp_path / "page.html")
    found = browser.run(ALL_STEPS)
    assert found["wrong"] == [] and found["same"] and found["first"] == 1
    assert found["counters"] == {name: count for name, count in shown.counters.items() if count}
    assert browser.messages() == [] and browser.requests() == []


def test_two_players_and_the_keyboard_alone(browser: Browser, tmp_path: Path):
    shown = gpureduce.replay("interleaved_idx", 256, beside="sequential")
    shown.save(tmp_path / "page.html")
    browser.open(tmp_path / "page.html", "#step=5")
    at = "return page.players.map((one) => one.model.at)"
    assert browser.run(at) == [5, 5]
    barriers = [i for i, step in enumerate(shown.steps) if step.kind == "__syncthreads"]
    conflicts = [
        i for i, step in enumerate(shown.steps) if step.counts.get("shared_load_conflicts")
    ]
    after = next(i for i in barriers if i > 5 and i - 1 not in barriers)
    for key, wanted in [(Keys.ARROW_LEFT, 4), (Keys.ARROW_RIGHT, 5), ("b", after), (Keys.HOME, 0),
                        ("c", conflicts[0]), (Keys.END, len(shown.steps) - 1)]:  # fmt: skip
        browser.press(key)
        assert browser.run(at)[0] == wanted, key
    browser.run("link()")
    assert browser.run("return location.hash") == f"#step={len(shown.steps) - 1}"
    rows = browser.run(
        "const cells = [...document.querySelectorAll('tr.differs td:first-child')];"
        "return cells.map((one) => one.textContent)"
    )
    assert "shared load conflicts" in rows and "global load sectors" not in rows
    browser.press(Keys.HOME, " ")
    browser.run("document.getElementById('speed').value = '60'")
    script = "const done = arguments[0]; setTimeout(() => done(page.players[0].model.at), 700)"
    assert browser.driver.execute_async_script(script) > 2
    browser.press(" ")
    assert not browser.run("return page.timer")


def test_a_notebook_shows_it_in_a_frame(browser: Browser, tmp_path: Path):
    """As nbconvert, JupyterLab and VS Code do, whose outputs have this policy."""
    policy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'"
    shown = gpureduce.replay("sequential", 64)
    page = tmp_path / "notebook.html"
    page.write_text(
        f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{policy}; '
        f'child-src https: data:"><p>Out[1]</p>{shown._repr_html_()}'
    )
    browser.driver.get(page.as_uri())
    browser.driver.switch_to.frame(browser.driver.find_element("css selector", "iframe"))
    browser.wait()
    browser.driver.find_element("css selector", "[data-do=next]").click()
    said = browser.run("return document.querySelector('.sentence').textContent")
    assert said.endswith(shown.sentences[1])
    browser.driver.switch_to.default_content()
    assert browser.messages() == [] and browser.requests() == []


def test_a_race_is_seen_at_once(tmp_path: Path):
    """Two players fit beside each other, with one table, whose columns have names of their own."""
    race = gpureduce.races("missing_barrier").races[0]
    gpureduce.replay("missing_barrier", race=race).save(tmp_path / "page.html")
    with opened(800) as browser:
        browser.open(tmp_path / "page.html")
        found = browser.run("""
          const canvases = [...document.querySelectorAll("canvas[role]")];
          const boxes = canvases.map((one) => one.getBoundingClientRect());
          const cells = [...document.querySelectorAll("table")].filter((one) => one.offsetHeight)
            .map((one) => [...one.rows[0].cells].map((cell) => cell.textContent));
          return [boxes.map((one) => one.top), boxes.map((one) => one.right), cells];""")
        assert found[0][0] == found[0][1] and found[1][1] <= 800
        assert found[2] == [["", "lockstep", "lockstep, last warp first"]]


def test_a_click_on_a_line_goes_to_its_next_execution(browser: Browser, tmp_path: Path):
    gpureduce.replay("interleaved_idx", 256).save(tmp_path / "page.html")
    browser.open(tmp_path / "page.html")
    line = "document.querySelector('.code button.now').nextElementSibling"
    browser.run(f"{line}.click()")
    assert "__syncthreads" in browser.run("return document.querySelector('.sentence').textContent")
    assert (
        browser.run("return document.querySelector('.code button.now .times').textContent") == "1×"
    )


def test_a_click_on_a_word_shows_its_elements(browser: Browser, tmp_path: Path):
    gpureduce.replay("sequential", 64).save(tmp_path / "page.html")
    browser.open(tmp_path / "page.html")
    click = """
      goTo(longest().count - 1);
      const player = page.players[0], box = player.canvas.getBoundingClientRect();
      const word = player.scene.items.find((one) => one.role === "word");
      const [x, y] = [word.x + 3, word.y + 3].map((one) => one * player.scale);
      const at = { clientX: box.left + x, clientY: box.top + y, bubbles: true };
      player.canvas.dispatchEvent(new MouseEvent("click", at));
      return player.scene.items.filter((one) => one.role === "contents").map((one) => one.text);"""
    assert browser.run(click) == ["64 elements: 0 to 63"]


def test_what_a_value_contains_is_told_in_words(browser: Browser, tmp_path: Path):
    text = """__global__ void k(const long long *in, long long *out, int n)
{
    __shared__ long long s[32];
    s[threadIdx.x] = threadIdx.x ? in[threadIdx.x] * 3 : 7;
    __syncthreads();
    if (threadIdx.x == 0) out[0] = in[1] + in[2];
}"""
    values = np.arange(32, dtype=np.int64) + 2**60
    made = gpureduce.kernel(text, finishes=True)
    shown = gpureduce.replay(made, values=values, block=32, grid=1)
    shown.save(tmp_path / "page.html")
    browser.open(tmp_path / "page.html")
    told = browser.run("""
      const player = page.players[0], told = (number, lane) => {
        goTo(number);
        const held = player.model.registers.get(`0.0.0.${lane}`);
        const scene = stage(player.model, { ...page.view, picked: { ...held, name: "x" } });
        return [held.value, scene.items.find((one) => one.role === "contents").text];
      };
      const all = player.model.steps.map((one, i) => [one, i]);
      const stores = all.filter(([one]) => one.kind === "store");
      return stores.map(([one, i]) => told(i, one.lanes[0]));""")
    assert told == [
        [7, "a constant"],
        [str(3 * values[1]), "not a plain sum of elements, or not known of which"],
        [str(2**61 + 3), "2 elements: 1 and 2"],
    ]  # fmt: skip


def test_the_text_of_a_kernel_is_no_part_of_the_page(browser: Browser, tmp_path: Path):
    text = """// </script><script>page.evil = 1</script><img src=x onerror="page.evil = 2">{{DATA}}
__global__ void k(const int *in, int *out, int n) { out[0] = in[0]; }"""
    gpureduce.replay(gpureduce.kernel(text), 32).save(tmp_path / "page.html")
    browser.open(tmp_path / "page.html")
    shown = browser.run("return document.querySelector('.code').textContent")
    assert all(line in shown for line in text.splitlines())
    assert browser.run("return [page.evil, document.images.length]") == [None, 0]
    assert browser.messages() == [] and browser.requests() == []


@pytest.mark.parametrize(("wide", "scheme"), [(390, "light"), (1200, "dark")])
def test_a_phone_and_the_dark(wide: int, scheme: str, tmp_path: Path):
    gpureduce.replay("warp_shfl", 256).save(tmp_path / "page.html")
    with opened(wide, scheme) as browser:
        browser.open(tmp_path / "page.html")
        assert browser.run("return document.documentElement.scrollWidth") <= wide
        paper = browser.run("return getComputedStyle(document.body).backgroundColor")
        assert paper == ("rgb(19, 20, 22)" if scheme == "dark" else "rgb(255, 255, 255)")
        assert browser.run("return page.colours.paper") == (
            "#131416" if scheme == "dark" else "#ffffff"
        )


def test_it_measures_itself(browser: Browser, tmp_path: Path):
    gpureduce.replay("sequential", 64).save(tmp_path / "page.html")
    browser.open(tmp_path / "page.html", "?measure")
    measured = browser.run("return page.measured")
    assert measured["steps"] == browser.run("return longest().count")
    assert 0 < measured["median"] <= measured["most"] and measured["frames"] >= 0


def processor_times(browser: Browser) -> np.ndarray:
    """The seconds that main threads of pages have run, and waited for a processor."""
    found, names = np.zeros(2), [str(browser.driver.service.process.pid)]
    for name in names:  # which grows
        folder = Path("/proc", name)
        names += " ".join(one.read_text() for one in folder.glob("task/*/children")).split()
        if b"--type=renderer" in (folder / "cmdline").read_bytes():
            found += [int(one) / 1e9 for one in (folder / "schedstat").read_text().split()[:2]]
    return found


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="needs Linux's schedstat")
def test_a_step_is_drawn_in_16_ms_and_60_are_shown_a_second(browser: Browser, tmp_path: Path):
    """A processor is needed for less than that; and where the page has one, it is so.

    Other programs may have the processors meanwhile. The first time, the script is compiled.
    """
    gpureduce.replay("sequential", 1024, block=256).save(tmp_path / "page.html")
    browser.open(tmp_path / "page.html")
    for _ in range(4):
        browser.driver.execute_async_script("measure().then(arguments[0])")
        median, before = browser.run("return page.measured.median"), processor_times(browser)
        play = "framesWhilePlaying().then(arguments[0])"
        frames = browser.driver.execute_async_script(play)
        ran, waited = processor_times(browser) - before
        is_shown = waited > 0.1 or (median < 16 and frames > 57)
        if is_quick := ran / (2 * frames) < 1 / 60 and is_shown:
            break
    assert is_quick, (median, frames, ran, waited)


# What kinds of things the picture shows, at five steps of two kernels.
SCENE = """
goTo(arguments[0]);
const found = {};
for (const { role } of page.players[0].scene.items) if (role) found[role] = (found[role] || 0) + 1;
return found;
"""
FRAMES = [
    ("interleaved_idx", 0, {"lane": 64, "word": 64, "sector": 4, "used": 32, "arrow": 32}),
    ("interleaved_idx", 6, {"lane": 64, "word": 64, "queue": 64, "arrow": 32}),
    ("interleaved_idx", 4, {"lane": 64, "word": 64}),
    ("warp_shfl", 1, {"lane": 64, "word": 2, "arrow": 16}),
    ("atomic_thread", 1, {"lane": 64, "sector": 1, "used": 1, "arrow": 32, "result": 1}),
    # the words of `work` that are near those of the step, of 64 of them
    ("global_tree", 3, {"lane": 64, "sector": 4, "used": 32, "arrow": 32, "result": 24}),
]


@pytest.mark.parametrize(("name", "step", "wanted"), FRAMES)
def test_frames(name: str, step: int, wanted: dict[str, int], browser: Browser, tmp_path: Path):
    gpureduce.replay(name, 64).save(tmp_path / "page.html")
    browser.open(tmp_path / "page.html")
    found = browser.driver.execute_script(SCENE, step)
    kinds = ("lane", "word", "sector", "used", "arrow", "queue", "result")
    assert {kind: found[kind] for kind in kinds if kind in found} == wanted
