"""Drive Open WebUI in Chromium as people do: python open_webui.py URL EMAIL PASSWORD < steps > shown, both as JSON.

A step is a list: a name in `STEPS` and its arguments. What is printed are the title and the messages that are shown in
the end.
"""

import json
import shutil
import sys
from collections.abc import Callable

from playwright.sync_api import Page, sync_playwright

STOP = 'button[aria-label="Stop"]'
SHOWN = "#messages-container"


def sign_in(page: Page, email: str, password: str) -> None:
    page.fill("input#email", email)
    page.fill("input#password", password)
    page.locator("button[type=submit]").click()
    page.locator("#chat-input").wait_for()
    page.wait_for_timeout(3_000)
    news = page.locator("[role=dialog] button")
    if news.count():
        news.last.click()


def settle(page: Page) -> None:
    """Wait for the answer, and for the title and what else is asked about the chat after it."""
    page.wait_for_timeout(1_000)
    page.wait_for_function("selector => !document.querySelector(selector)", arg=STOP)
    page.wait_for_timeout(1_500)


def say(page: Page, text: str) -> None:
    page.locator("#chat-input").click()
    page.keyboard.type(text)
    page.keyboard.press("Enter")
    settle(page)


def press(page: Page, label: str) -> None:
    """Press the last button of that label, which may be hidden until the mouse is above it."""
    page.locator(f'{SHOWN} button[aria-label="{label}"]').last.evaluate("button => button.click()")
    page.wait_for_timeout(500)


def regenerate(page: Page) -> None:
    press(page, "Regenerate")
    page.get_by_text("Try Again").last.click()
    settle(page)


def edit(page: Page, old: str, new: str) -> None:
    """Edit a question, or an answer, of which the model is then not asked again."""
    said = page.locator(f"{SHOWN} [id^=message-]", has_text=old).last
    said.locator('button[aria-label="Edit"]').first.evaluate("button => button.click()")
    page.locator(f"{SHOWN} textarea").last.fill(new)
    page.locator("#confirm-edit-message-button").last.evaluate("button => button.click()")
    settle(page)


def back(page: Page) -> None:
    """Show what stood at the last place that has several versions."""
    press(page, "Previous message")
    settle(page)


STEPS: dict[str, Callable[..., None]] = {"say": say, "regenerate": regenerate, "edit": edit, "back": back}

if __name__ == "__main__":
    url, email, password = sys.argv[1:]
    with sync_playwright() as play:
        arguments = ["--no-sandbox", "--disable-background-networking"]
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=arguments)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(f"{url}/auth")
        sign_in(page, email, password)
        for step, *given in json.load(sys.stdin):
            STEPS[step](page, *given)
        json.dump({"title": page.title(), "shown": page.inner_text(SHOWN)}, sys.stdout)
        browser.close()
