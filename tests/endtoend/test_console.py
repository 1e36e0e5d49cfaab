"""The web console in a real browser: Chromium, where it and chromedriver are installed (``make install-test``)."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from console import application
from penstock.access.passwords import Users, format_passwords, hash_password
from penstock.blocking import Admin, Consumer, Producer
from penstock.client.message_tasks import offset_id
from tests.console.pages.test_clients import Device
from tests.node.running import RunningSystem
from tests.patience import PATIENCE_S
from tests.penstock.admin_scene import begin, delay, kill

T = TypeVar("T")

AXE = Path(__file__).parents[2] / ".node" / "node_modules" / "axe-core" / "axe.min.js"
CHROMIUM, CHROMEDRIVER = shutil.which("chromium"), shutil.which("chromedriver")
PAGES = (
    "/login",
    "/",
    "/topics",
    "/topic?name=orders",
    "/messages?topic=orders",
    "/message?id={message}",
    "/publish",
    "/groups",
    "/group?name=billing",
    "/group/reset?name=billing&to=earliest",
    "/letters",
    "/letters/of?group=dying",
    "/sleeping",
    "/clients",
    "/client?id=pump-1",
    "/filters",
    "/retained",
    "/brokers",
    "/broker?name=broker-a",
    "/access?user=vera&action=consume&about=orders",
    "/audit",
    "/events",
    "/events/bus?name=default",
)
"""``{message}`` stands for the id of a traced message. The pages without one of their own are live parts of these."""

pytestmark = [
    pytest.mark.endtoend,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None or CHROMEDRIVER is None, reason="chromium and chromedriver are not installed"),
]


@pytest.fixture
def system(tmp_path: Path) -> Iterator[RunningSystem]:
    """One with users, and with something on every page."""
    users = {"ada": hash_password(b"right", b"s" * 16), "vera": hash_password(b"look", b"t" * 16)}
    (tmp_path / "users").write_text(format_passwords(Users(users)))
    file = tmp_path / "penstock.toml"
    (tmp_path / "rules").write_text("allow user ada admin *\nallow user vera view *\nallow all all #\n")
    file.write_text(f'[console]\npassword_file = "{tmp_path / "users"}"\nacl_file = "{tmp_path / "rules"}"\n')
    running = RunningSystem(tmp_path / "data", file, console_port=0)  # type: ignore[arg-type]
    servers = running.addresses.namesrv
    with Producer(servers=servers) as producer:
        for number in range(5):
            producer.send("orders", b'{"order": %d}' % number, key="k")
    with Consumer("billing", ["orders"], start="earliest", servers=servers) as consumer:
        read = 0
        for batch in consumer:
            read += len(batch)
            consumer.commit()
            if read == 5:
                break
    kill(servers, b"one", group="dying", topic="deaths", name="deaths/1")
    begin(servers, b"half")
    delay(servers, b"later")
    yield running
    running.stop()


@pytest.fixture
def driver() -> Iterator[Any]:
    options = Options()
    for one in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,900"):
        options.add_argument(one)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    options.binary_location = str(CHROMIUM)
    browser = webdriver.Chrome(options=options, service=Service(str(CHROMEDRIVER)))
    yield browser
    browser.quit()


class Window:
    """A browser at a console."""

    def __init__(self, driver: Any, url: str) -> None:
        self.driver = driver
        self._url = url.rstrip("/")

    def open(self, path: str) -> None:
        self.driver.get(self._url + path)

    def text(self) -> str:
        return str(self.driver.find_element(By.TAG_NAME, "body").text)

    def wait(self, condition: Callable[[], T]) -> T:
        """The first true answer. It is asked for again where the page, or a live part of it, is replaced meanwhile."""
        replaced = [StaleElementReferenceException]
        found: T = WebDriverWait(self.driver, PATIENCE_S, 0.1, replaced).until(lambda _: condition())
        return found

    def press(self, button: str) -> None:
        """A button; what hides it is opened first."""
        xpath = f"//main//button[normalize-space()='{button}'] | //header//button[normalize-space()='{button}']"

        def pressed() -> bool:
            for summary in self.driver.find_elements(By.CSS_SELECTOR, "main details:not([open]) > summary"):
                summary.click()
            self.driver.find_element(By.XPATH, xpath).click()
            return True

        self.wait(pressed)

    def log_in(self, user: str, password: str) -> None:
        self.open("/")
        self.driver.find_element(By.NAME, "user").send_keys(user)
        self.driver.find_element(By.NAME, "password").send_keys(password + Keys.ENTER)
        self.wait(lambda: "Log out" in self.text() or "wrong" in self.text())

    def resize(self, width: int) -> None:
        metrics = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def scheme(self, name: str) -> None:
        features = {"features": [{"name": "prefers-color-scheme", "value": name}]}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", features)

    def violations(self) -> list[str]:
        """What axe-core finds; where npm has not brought it the test says at its end that it was skipped."""
        if not AXE.exists():
            return []
        self.driver.execute_script(AXE.read_text())
        run = "const done = arguments[0]; axe.run().then((found) => done(found.violations.map("
        told = self.driver.execute_async_script(run + "(one) => one.id + ' ' + one.nodes[0].html.slice(0, 200))))")
        return [str(one) for one in told]

    def errors(self) -> list[str]:
        """What the browser complains of, but that the server has refused something."""
        told = [str(one["message"]) for one in self.driver.get_log("browser")]
        return [one for one in told if "the server responded with a status of" not in one]


def test_an_operator_looks_and_acts_in_a_browser(system: RunningSystem, driver: Any) -> None:
    window = Window(driver, system.addresses.console)
    servers = system.addresses.namesrv
    device = Device(system, "pump-1", "pumps/+/level")
    try:
        window.log_in("ada", "wrong")
        assert "Name or password is wrong." in window.text()
        _a_viewer_is_refused(window)
        window.log_in("ada", "right")
        _the_overview_lives(window, servers)
        _a_group_is_moved(window)
        window.open("/letters/of?group=dying")
        window.press("Send all that were not sent again")
        window.wait(lambda: "1 dead letters of dying were sent again." in window.text())
        window.open("/client?id=pump-1")
        assert "MQTT 3.1.1 tcp" in window.text()
        window.press("Disconnect pump-1")
        window.wait(lambda: "pump-1 was disconnected." in window.text())
        assert device.ended.wait(PATIENCE_S)
        _the_audit_log_has_what_was_done(window)
        _every_page_fits_and_is_accessible(window, _traced_message(servers))
        assert window.errors() == []
    finally:
        device.stop()
    if not AXE.exists():
        pytest.skip("all passed but axe-core's look at the pages: it is not installed (make install-test, with npm)")


def _a_viewer_is_refused(window: Window) -> None:
    window.log_in("vera", "look")
    window.open("/topic?name=orders")
    assert window.driver.find_elements(By.CSS_SELECTOR, "main form[method=post]") == []
    send = (
        "const done = arguments[0]; fetch('/topics/delete', {method: 'POST', body: new URLSearchParams({name: 'orders'"
    )
    send += ", csrf: document.querySelector('[name=csrf]').value})}).then((answer) => done(answer.status))"
    assert window.driver.execute_async_script(send) == 403
    window.open("/access?user=vera&action=produce&about=orders")
    assert "allow user vera produce orders" in window.text()
    window.press("Log out vera")
    window.wait(lambda: "Password" in window.text())


def _the_overview_lives(window: Window, servers: str) -> None:
    window.open("/")
    tile = "//li[contains(., 'Topics')]//span[@class='value']"
    before = int(window.wait(lambda: window.driver.find_element(By.XPATH, "//main" + tile).text))
    with Producer(servers=servers) as producer:
        producer.send("made-meanwhile", b"x")
    window.wait(lambda: int(window.driver.find_element(By.XPATH, "//main" + tile).text) == before + 1)
    window.wait(lambda: "now in" in window.driver.find_element(By.CSS_SELECTOR, ".chart .last").text)
    assert window.driver.find_elements(By.CSS_SELECTOR, ".chart canvas")


def _a_group_is_moved(window: Window) -> None:
    window.open("/group?name=billing")
    window.press("Preview")
    window.wait(lambda: "Move billing?" in window.text())
    assert "5 messages are read again, 0 are skipped" in window.text()
    window.press("Move billing")
    window.wait(lambda: "billing was moved in" in window.text())
    assert window.wait(lambda: window.driver.find_element(By.CSS_SELECTOR, ".facts dd").text) == "5"


def _the_audit_log_has_what_was_done(window: Window) -> None:
    def told() -> bool:
        window.open("/audit")
        text = window.text()
        return all(one in text for one in ("/group/reset", "/client/disconnect", "wrong_password", "/topics/delete"))

    window.wait(told)


def _traced_message(servers: str) -> str:
    """The offset id of a message with a trace."""
    with Admin(servers) as admin, Producer(servers=servers) as producer:
        admin.change_topic("orders", trace_every=1)
        sent = producer.send("orders", b"{}")
        return offset_id(admin.browse(sent.queue, sent.offset, 1)[0][0])


def test_every_page_of_the_console_is_looked_at_in_a_browser() -> None:
    parts = {path for path in application.PAGES if path.endswith("/live") or path in ("/overview/rates", "/group/lag")}
    assert {path.partition("?")[0] for path in PAGES} - {"/login"} == set(application.PAGES) - parts


def _every_page_fits_and_is_accessible(window: Window, message: str) -> None:
    for width, scheme in ((375, "dark"), (1280, "light")):
        window.resize(width)
        window.scheme(scheme)
        for path in [one.format(message=message) for one in PAGES]:
            window.open(path)
            wide, seen = window.driver.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
            assert wide <= seen, f"{path} scrolls sideways at {width}"
            assert window.violations() == [], f"{path} at {width}, {scheme}"
    window.driver.find_element(By.TAG_NAME, "body").send_keys(Keys.TAB)
    assert "Skip to the content" in window.driver.switch_to.active_element.text
