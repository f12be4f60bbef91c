"""An HTML page that shows a session: its tree, its messages, and an explanation of each prompt."""

from shared_core.doors.view.page import page, write_page
from shared_core.doors.view.page_data import gather

__all__ = ["gather", "page", "write_page"]
