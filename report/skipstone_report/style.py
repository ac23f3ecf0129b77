"""The style sheet of the page: light and dark, narrow and wide, without anything from elsewhere.

Texts have a contrast of at least 4.5 to 1 and marks of at least 3 to 1 (WCAG 2.2, level AA); a test computes it from
``LIGHT`` and ``DARK``.
"""

from __future__ import annotations

from collections.abc import Mapping

#: Colors by use. ``on-…`` is text on that color.
LIGHT: Mapping[str, str] = {
    "page": "#ffffff",
    "panel": "#f6f8fa",
    "text": "#1f2328",
    "muted": "#57606a",
    "line": "#d0d7de",
    "edge": "#6e7781",
    "link": "#0550ae",
    "good": "#116329",
    "bad": "#a40e26",
    "wait": "#7d4e00",
    "kept": "#1a7f37",
    "candidate": "#0969da",
    "unchanged": "#8250df",
    "rewritten": "#cf222e",
    "marked": "#9a6700",
    "missing": "#bc4c00",
    "failed": "#a40e26",
    "on-fill": "#ffffff",
}
DARK: Mapping[str, str] = {
    "page": "#0d1117",
    "panel": "#161b22",
    "text": "#e6edf3",
    "muted": "#9da7b3",
    "line": "#30363d",
    "edge": "#848d97",
    "link": "#79c0ff",
    "good": "#56d364",
    "bad": "#ff938a",
    "wait": "#e3b341",
    "kept": "#3fb950",
    "candidate": "#58a6ff",
    "unchanged": "#bc8cff",
    "rewritten": "#ff7b72",
    "marked": "#d29922",
    "missing": "#f0883e",
    "failed": "#ff938a",
    "on-fill": "#0d1117",
}
_SOLID = ("kept", "candidate", "unchanged", "rewritten", "marked", "missing", "failed")


def _variables(colors: Mapping[str, str]) -> str:
    return "".join(f"--{name}:{color};" for name, color in colors.items())


def _fills() -> str:
    solid = "".join(f".fill-{name}{{fill:var(--{name})}}" for name in _SOLID)
    drawn = "".join(f".marks-{name}{{stroke:var(--on-fill)}}" for name in _SOLID)
    return f"{solid}{drawn}"


_RULES = """
*{box-sizing:border-box}
body{margin:0 auto;max-width:1240px;padding:0 16px 48px;background:var(--page);color:var(--text);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;overflow-wrap:anywhere}
h1{font-size:26px;margin:20px 0 4px}h2{font-size:20px;margin:36px 0 10px;padding-top:10px;
border-top:1px solid var(--line)}
h3{font-size:15px;margin:0}p{margin:4px 0 8px}small,.note,figcaption{color:var(--muted);font-size:13px}
a{color:var(--link)}a:focus-visible,summary:focus-visible,.scroll:focus-visible{outline:2px solid var(--link);
outline-offset:2px}
code{font:13px ui-monospace,SFMono-Regular,Menlo,"DejaVu Sans Mono",monospace}
nav ul,ul.key,ul.problems,ol.funnel,ol.waterfall{list-style:none;margin:0;padding:0}
nav ul{display:flex;flex-wrap:wrap;gap:4px 16px}nav a{display:inline-block;padding:4px 0}
article{background:var(--panel);border:1px solid var(--line);border-radius:8px;padding:12px;margin:0 0 12px;
min-width:0}
.defs{position:absolute}
.tiles{display:grid;grid-template-columns:repeat(auto-fill,minmax(140px,1fr));gap:8px;margin:16px 0}
.tile{background:var(--panel);border:1px solid var(--line);border-radius:8px;padding:8px 12px}
.tile dt{color:var(--muted);font-size:13px}.tile dd{margin:0;font-size:22px;font-weight:600}
.tile.bad{border-color:var(--bad);border-width:2px}.tile.bad dd{color:var(--bad)}
.problems li{background:var(--panel);border:1px solid var(--line);border-left:4px solid var(--edge);border-radius:8px;
padding:10px 12px;margin:0 0 8px}
.problems dl{display:grid;grid-template-columns:minmax(84px,max-content) 1fr;gap:2px 12px;margin:6px 0 0;
font-size:14px}
.problems dt{color:var(--muted)}.problems dd{margin:0}
.badge{display:inline-block;border:1px solid;border-radius:10px;padding:0 8px;font-size:12px}
.badge.act,.no{color:var(--bad)}.badge.watch,.badge.wait{color:var(--wait)}.yes,.good{color:var(--good)}
.none{color:var(--muted)}
.pair{display:grid;gap:16px;margin-top:8px}.pair>*{min-width:0}.columns{display:grid;gap:12px;grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr))}
.columns>article{margin:0}
.funnel li,.waterfall li{display:grid;grid-template-columns:132px 1fr 76px;gap:0 8px;align-items:center;margin:3px 0}
.funnel small{grid-column:2/4}.amount{text-align:right;font-variant-numeric:tabular-nums}
.bar{display:block;width:100%}.bar .frame{fill:none;stroke:var(--edge);stroke-width:1}
figure{margin:0}.map{display:block;width:100%;max-width:520px}figcaption{margin:6px 0}
.key{display:flex;flex-wrap:wrap;gap:2px 16px;font-size:13px;margin:4px 0 8px}.key li{display:flex;gap:5px;
align-items:center}
.swatch{border:1px solid var(--edge);flex:none}.mark{flex:none}
.fill-pruned{fill:var(--page);stroke:var(--edge);stroke-width:.7}
pattern path{fill:none;stroke-width:1.2}
.mark-merge{fill:var(--candidate);stroke:var(--page)}.mark-load{fill:var(--kept);stroke:var(--page)}
.mark-failed{fill:none;stroke:var(--rewritten);stroke-width:3}.mark-sync{fill:var(--marked);stroke:var(--page)}
.lag{display:block;width:100%;overflow:visible}.lag text{fill:var(--muted);font-size:12px}
.lag .tick{stroke:var(--line)}
.scroll{overflow-x:auto;margin:6px 0 12px;border:1px solid var(--line);border-radius:8px}
table{border-collapse:collapse;width:100%;font-size:13.5px}caption{text-align:left;padding:8px 10px;font-weight:600}
th,td{padding:5px 10px;text-align:left;border-top:1px solid var(--line);vertical-align:top;overflow-wrap:normal}
td{font-variant-numeric:tabular-nums}thead th{color:var(--muted);font-weight:600;white-space:nowrap}
tbody th{font-weight:600;min-width:130px;overflow-wrap:anywhere}time,data{white-space:nowrap}
td small{display:block}.wide{display:inline-block;min-width:110px}
.heat{width:auto;min-width:60%}.heat td:nth-child(3){width:76px;min-width:76px}.heat tbody th{min-width:100px}
.heat td:nth-child(2){white-space:nowrap}
.cell{text-align:center;min-width:24px}td.cell{padding:4px 2px;border:1px solid var(--page)}
.heat thead th{padding:5px 4px}.heat thead th:first-child{padding-left:10px}
span.cell{display:inline-block;border-radius:3px}
.covered{background:var(--kept);color:var(--on-fill)}
.missing{background:repeating-linear-gradient(45deg,var(--missing) 0 6px,var(--failed) 6px 8px);color:var(--on-fill);
font-weight:700}
.later{background:var(--page);color:var(--muted)}.not-known{color:var(--muted);outline:1px dashed var(--edge);
outline-offset:-2px}
.unseen{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}
details{margin:8px 0 0}summary{cursor:pointer;color:var(--link);font-size:13px;padding:3px 0}
footer{color:var(--muted);font-size:13px;margin-top:36px}
@media(min-width:900px){.pair{grid-template-columns:3fr 2fr}}
@media(max-width:480px){.funnel li,.waterfall li{grid-template-columns:104px 1fr 62px;gap:6px}
.problems dl{grid-template-columns:1fr}
.problems dd{margin-bottom:4px}.heat td:nth-child(3){display:none}}
@media print{body{max-width:none}.scroll{overflow:visible}details{display:none}}
"""

STYLE = (
    f":root{{color-scheme:light dark;{_variables(LIGHT)}}}"
    f"@media(prefers-color-scheme:dark){{:root{{{_variables(DARK)}}}}}{_fills()}{_RULES}"
)
