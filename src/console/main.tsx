import { render } from "preact"
import { App } from "./App.tsx"
import { startTheme } from "./navigation/Sidebar.tsx"

startTheme()
render(<App />, document.getElementById("console")!)
