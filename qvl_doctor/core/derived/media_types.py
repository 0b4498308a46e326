"""What a file is by its first bytes, where a log shows the beginning of its base64 text."""

from __future__ import annotations

import binascii

from qvl_doctor.core.facts import View, derived

# (offset, signature, kind) of files that are sent as pictures and that Pillow, as vLLM installs it, does not open.
_SIGNATURES = (
    (4, b"ftyphei", "HEIC"),
    (4, b"ftyphev", "HEIC"),
    (4, b"ftypmif1", "HEIF"),
    (4, b"ftypmsf1", "HEIF"),
    (4, b"ftypisom", "an MP4 video"),
    (4, b"ftypmp4", "an MP4 video"),
    (4, b"ftypavc1", "an MP4 video"),
    (4, b"ftypqt", "a QuickTime video"),
    (0, b"\x1aE\xdf\xa3", "a Matroska or WebM video"),
    (0, b"%PDF-", "a PDF document"),
    (0, b"<svg", "SVG"),
    (0, b"<?xml", "XML or SVG"),
    (0, b"<!DOCTYPE html", "a web page (HTML)"),
    (0, b"<!doctype html", "a web page (HTML)"),
    (0, b"<html", "a web page (HTML)"),
    (0, b"PK\x03\x04", "a ZIP archive or office document"),
    (0, b"data:", "a data URL that was encoded once more"),
)


@derived("derived.undecodable_type", "str", "", "kind of the file whose base64 text the log shows, if it is no picture")
def _undecodable_type(view: View) -> str | None:
    text = view.text("match.head")
    if text is None:
        return None
    try:
        head = binascii.a2b_base64(text[: len(text) // 4 * 4])
    except binascii.Error:
        return None
    return next((kind for offset, start, kind in _SIGNATURES if head.startswith(start, offset)), None)
