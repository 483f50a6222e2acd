import { languages } from "./samples.ts"

/** The sample of the chosen language is shown, the others are not: without a script. */
const choice = languages.map(({ id }) => `body:has(#lang-${id}:checked) .sample:not(.${id}){display:none}`).join("\n")

export const style = `
:root{color-scheme:light dark;--line:#d8dee6;--soft:#f4f6f9;--text:#1b2430;--mute:#5b6776;--link:#0b57a4;--page:#fff}
@media(prefers-color-scheme:dark){:root{--line:#2f3a47;--soft:#18212c;--text:#e3e8ee;--mute:#98a5b3;--link:#7db7f5;--page:#10161e}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--text);font:16px/1.55 system-ui,sans-serif;display:grid;grid-template-columns:17rem minmax(0,1fr)}
a{color:var(--link)}
nav{position:sticky;top:0;height:100vh;overflow:auto;padding:1rem;border-right:1px solid var(--line);font-size:.9rem}
nav ul{list-style:none;margin:0 0 .8rem;padding:0}
nav a{text-decoration:none;display:block;padding:.1rem 0}
nav strong a{color:inherit}
main{padding:1rem 2rem 4rem;max-width:60rem;min-width:0}
article{border-top:1px solid var(--line);padding:1rem 0}
h1{margin:.3rem 0}h2{margin:2.5rem 0 .3rem}h3{margin:.2rem 0}h4{margin:1rem 0 .3rem}
code,pre{font:.875em/1.5 ui-monospace,Menlo,Consolas,monospace}
code,dt,.path{overflow-wrap:anywhere}
pre{background:var(--soft);border:1px solid var(--line);border-radius:6px;padding:.7rem;overflow-x:auto;margin:.4rem 0}
.path b{display:inline-block;margin-right:.5rem;color:var(--link)}
.languages{position:sticky;top:0;background:var(--page);padding:.4rem 0;border-bottom:1px solid var(--line);z-index:1}
.languages label{margin-right:1rem;white-space:nowrap}
dl{margin:.3rem 0}dt{font-weight:600;margin-top:.5rem}dt small,.mute{color:var(--mute);font-weight:400}
dd{margin:0 0 0 1rem}
summary{cursor:pointer}
:target{scroll-margin-top:3.5rem}
@media(max-width:48rem){body{display:block}nav{position:static;height:auto;max-height:40vh;border:0;border-bottom:1px solid var(--line)}main{padding:1rem}}
${choice}
`
