"""The HTML frame of the report. Styles and images are inline; the page loads nothing from the network."""

from __future__ import annotations

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #333; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1, h2 { font-weight: 600; } h2 { margin-top: 2.5rem; }
img { max-width: 100%; height: auto; display: block; }
table { border-collapse: collapse; } td, th { padding: 0.2rem 1rem 0.2rem 0; text-align: left; }
th { border-bottom: 1px solid #999; }
"""

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>{run}: {model} of {data}</title>
<style>{style}</style>
</head>
<body>
<h1>{run}</h1>
<p>A density of {data}, fitted to {parts} rows. The pictures compare {rows} rows of the table with {samples}
samples.</p>
{score}
<table><tr><th>column</th><th>kind</th><th>term in the likelihood</th></tr>{columns}</table>
{judgement}
{figures}
</body>
</html>
"""
