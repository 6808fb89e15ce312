"""From one matplotlib figure to a picture on the page, with a text for those who cannot see it."""

from __future__ import annotations

import base64
import io
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# ipywidgets gives the handle of a slider no accessible name, and the box that facts are announced from is made anew at
# every change. The picture is the last thing to load, so its loading mends both: the label names handle and read-out,
# and the box that stays becomes the live region. Where scripts are blocked, everything else still works.
NAME_HANDLES = """
(function(image){function mend(){var panel=image.closest('.ppo-panel');if(!panel)return;
panel.querySelectorAll('.widget-slider').forEach(function(slider){
var label=slider.querySelector('label');if(!label)return;
slider.querySelectorAll('[role=slider]').forEach(function(e){e.setAttribute('aria-label',label.textContent)});
slider.querySelectorAll('.widget-readout').forEach(function(e){e.setAttribute('role','textbox');
e.setAttribute('aria-label',label.textContent+', value')})});
panel.querySelectorAll('.ppo-facts').forEach(function(facts){var box=facts.parentElement;
if(box){box.setAttribute('aria-live','polite');facts.removeAttribute('aria-live')}})}
mend();setTimeout(mend,300);setTimeout(mend,1500)})(this)
""".replace("\n", "")


def png(figure: Figure, *, compress: int = 1) -> bytes:
    """The figure on an opaque white face; the same bytes from the same drawing (no version or date inside).

    ``compress`` 1 is quick, for what is redrawn; 9 is small, for what is stored.
    """
    figure.set_facecolor("white")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None}, pil_kwargs={"compress_level": compress})
    return buffer.getvalue()


def encoded(picture: bytes) -> str:
    """Base64, as a notebook stores it."""
    return base64.b64encode(picture).decode("ascii")


def image(picture: bytes, alt: str, *, width: int) -> str:
    """An ``<img>`` with real alternative text, as wide as there is room for, at most ``width`` pixels."""
    style = f"width:100%;max-width:{width}px;background:white;display:block"
    source = f"data:image/png;base64,{encoded(picture)}"
    return f'<img alt="{escape(alt)}" style="{style}" onload="{escape(NAME_HANDLES)}" src="{source}">'
