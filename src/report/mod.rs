//! What records mean: a pure function of them, as text, HTML, Markdown and JSON.
