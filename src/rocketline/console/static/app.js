// Starts what the page needs. Scripts never make HTML: only text and elements.
import { followCells } from "./cells.js";
import { drawCharts } from "./charts.js";
import { prepareForms } from "./forms.js";
import { listenForKeys } from "./keys.js";
import { followTopic } from "./live.js";
import { watchLoading } from "./loading.js";
import { continueSearch } from "./search.js";
import { rememberZone } from "./zone.js";

rememberZone();
watchLoading();
listenForKeys();
prepareForms();
followCells();
followTopic();
continueSearch();
drawCharts();
