//! The web console in Chromium, as visitors see it: pages that change by themselves, in the dark, on a phone, by
//! keyboard, without scripts and through kills, and games against the network.
#![cfg(target_os = "linux")]

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use fleet::RunDirectory;
use fleet::run_directory::Progress;
use game::Game as _;
use games::GameKind;
use serde_json::{Value, json};
use tests::{Browser, Process, Python, TrainingRun, wait_until};

use crate::random_weights::Published;

const DEADLINE: Duration = Duration::from_secs(90);
/// Time limit of what visitors see at once: several times what a machine takes that does nothing else.
const PROMPT: Duration = Duration::from_secs(20);

/// A way to look at a page.
struct View {
    name: &'static str,
    scheme: &'static str,
    /// Width of the window in pixels.
    width: u32,
}

const LIGHT: View = View { name: "light", scheme: "light", width: 1280 };
const VIEWS: [View; 3] =
    [LIGHT, View { name: "dark", scheme: "dark", width: 1280 }, View { name: "phone", scheme: "light", width: 360 }];

/// The keys Tab and Enter in WebDriver.
const TAB: &str = "\u{e004}";
const ENTER: &str = "\u{e007}";

/// Finds violations that axe calls serious or critical, each with the elements.
const AUDIT: &str = "return axe.run().then(({ violations }) => violations
    .filter(({ impact }) => ['serious', 'critical'].includes(impact))
    .map(({ id, impact, nodes }) => `${impact} ${id}: ${nodes.map(({ html }) => html.slice(0, 200)).join(' ')}`));";

/// Names the controls of a page: those that work with a keyboard. Values change on live pages, and are left out.
const CONTROLS: &str = r#"
    const name = (e) => [e.localName, e.getAttribute("href") ?? e.name,
        e.getAttribute("aria-label") ?? (e.localName === "a" ? "" : e.textContent.trim())].join(" ");
    const selector = "a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex='0']";
    const controls = () => [...document.querySelectorAll(selector)]
        .filter((e) => !e.disabled && e.checkVisibility()).map(name);
"#;

/// True when a visitor who plays is to move, or the game is over.
const STOPS: &str =
    "/^(You |The program wins|The game is)/.test(document.querySelector('main [role=status]')?.textContent)";
/// True when the game is over.
const IS_OVER: &str = "!document.querySelector('main input[name=move]')";

/// A browser that shows pages of a console.
struct Tab {
    browser: Browser,
    /// Address of the console.
    console: String,
}

impl Tab {
    /// Starts a browser, or skips the test where there is none.
    fn start(console: &str) -> Option<Self> {
        match Browser::start().unwrap() {
            Ok(browser) => Some(Self { browser, console: console.to_owned() }),
            Err(why) => {
                tests::skip("browser", why);
                None
            }
        }
    }

    fn look(&self, view: &View) {
        let scheme = json!({ "features": [{ "name": "prefers-color-scheme", "value": view.scheme }] });
        self.browser.devtools("Emulation.setEmulatedMedia", &scheme).unwrap();
        let is_phone = view.width < 500;
        let window = json!({ "width": view.width, "height": 900, "deviceScaleFactor": 1, "mobile": is_phone });
        self.browser.devtools("Emulation.setDeviceMetricsOverride", &window).unwrap();
    }

    /// Opens a page at a path of the console, or at a whole address.
    fn open(&self, page: &str) {
        let base = if page.starts_with('/') { self.console.as_str() } else { "" };
        self.browser.open(&format!("{base}{page}")).unwrap();
    }

    fn run(&self, script: &str) -> Value {
        self.browser.run(script).unwrap()
    }

    fn text(&self, selector: &str) -> String {
        let text = self.run(&format!("return document.querySelector({})?.textContent ?? ''", json!(selector)));
        text.as_str().unwrap().to_owned()
    }

    /// Returns the addresses of the links that a selector matches.
    fn links(&self, selector: &str) -> Vec<String> {
        let links = self.run(&format!("return [...document.querySelectorAll({})].map((a) => a.href)", json!(selector)));
        serde_json::from_value(links).unwrap()
    }

    fn holds(&self, condition: &str) -> bool {
        // No script runs between two pages.
        self.browser.run(&format!("return Boolean({condition})")).is_ok_and(|value| value == true)
    }

    /// Waits until a condition holds in the page.
    fn until(&self, what: &str, deadline: Duration, condition: &str) {
        let waited = wait_until(what, deadline, || Ok(self.holds(condition)));
        waited.unwrap_or_else(|error| panic!("{error:#}: {}", self.text("body")));
    }

    /// Returns what must not occur, since the last call: warnings and errors in the console of the browser, and
    /// requests to other hosts.
    fn logged(&self) -> Vec<String> {
        let messages = self.browser.messages().unwrap().into_iter();
        let mut lines: Vec<String> =
            messages.filter(|text| ["\"SEVERE\"", "\"WARNING\""].iter().any(|level| text.starts_with(level))).collect();
        lines.retain(|line| !(line.contains("/nothing ") && line.contains("status of 404")));
        let own = format!("{}/", self.console);
        let requests = self.browser.requests().unwrap().into_iter();
        lines.extend(requests.filter(|address| !address.starts_with(&own) && !address.starts_with("data:")));
        lines
    }

    /// Returns all pages: of the navigation, and one page of each further kind.
    fn pages(&self) -> Vec<String> {
        self.open("/");
        let mut pages = self.links("nav[aria-label=Pages] a");
        assert!(pages.len() > 6, "{pages:?}");
        for (page, link) in [("/games", "main a[href*='place=']"), ("/replay", "main a[href^='/replay/game?']")] {
            wait_until(&format!("{page} lists a game"), DEADLINE, || {
                self.open(page);
                Ok(!self.links(link).is_empty())
            })
            .unwrap();
            pages.extend(self.links(link).into_iter().take(1));
        }
        let others = ["/play?moves=4_4", "/sign-in", "/nothing"];
        pages.extend(others.map(|path| format!("{}{path}", self.console)));
        pages
    }

    /// Returns what is wrong with a page: violations by axe, logged lines, and a page that is wider than the window.
    fn faults(&self, page: &str, view: &View, axe: &str) -> Vec<String> {
        self.look(view);
        self.open(page);
        self.run(axe);
        let mut faults: Vec<String> = serde_json::from_value(self.run(AUDIT)).unwrap();
        let width = self.run("return document.documentElement.scrollWidth");
        if width.as_u64() > Some(view.width.into()) {
            faults.push(format!("{width} pixels wide"));
        }
        faults.extend(self.logged());
        if let Some(folder) = std::env::var_os("ZEROFLEET_SCREENSHOTS") {
            let name = format!("{}-{}.png", file_name(page, &self.console), view.name);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(Path::new(&folder).join(name), self.browser.picture().unwrap()).unwrap();
        }
        faults.into_iter().map(|fault| format!("{page}, {}: {fault}", view.name)).collect()
    }

    /// Returns the controls of a page that Tab does not reach, or shows no focus on. Games come and go meanwhile.
    fn unreachable(&self, page: &str) -> Vec<String> {
        self.open(page);
        let listen = "window.before = controls();
            window.reached = new Map();
            document.addEventListener('focusin', ({ target }) => {
                const { outlineStyle, outlineWidth } = getComputedStyle(target);
                const hasOutline = outlineStyle !== 'none' && parseFloat(outlineWidth) > 0;
                const cell = target.querySelector('.hit');
                reached.set(name(target), hasOutline || Boolean(cell) && getComputedStyle(cell).stroke !== 'none');
            });
            return before.length";
        let count = self.run(&format!("{CONTROLS}{listen}")).as_u64().unwrap();
        // Twice, as some controls may appear during the first round.
        self.browser.press(&TAB.repeat(2 * usize::try_from(count).unwrap() + 10)).unwrap();
        let missing = "const after = controls();
            return before.filter((name) => after.includes(name) && reached.get(name) !== true)";
        let missing: Vec<String> = serde_json::from_value(self.run(&format!("{CONTROLS}{missing}"))).unwrap();
        missing.into_iter().map(|control| format!("{page}: {control}")).collect()
    }

    /// Waits until another address shows that the visitor is to move again, or that the game is over.
    fn until_response(&self, before: &str) {
        let condition = format!("location.href !== {} && {STOPS}", json!(before));
        self.until("the network responds to the move", DEADLINE, &condition);
    }

    /// Clicks on the first of these elements that exists, in a game in which the visitor is to move.
    fn plays(&self, selectors: &[&str]) {
        let is_there = |selector: &&&str| self.holds(&format!("document.querySelector({})", json!(selector)));
        let selector = selectors.iter().find(is_there).unwrap_or_else(|| panic!("{}", self.text("main")));
        let before = self.browser.address().unwrap();
        self.browser.click(selector).unwrap();
        self.until_response(&before);
    }

    /// Plays a game from an address to the end on the cells that come first, and passes after a pass.
    fn plays_to_the_end(&self, page: &str) {
        const CELL: &str = "main svg a[aria-label^='play ']";
        const PASS: &str = "main button[value=pass]";
        self.open(page);
        self.until("the visitor is to move", DEADLINE, STOPS);
        while !self.holds(IS_OVER) {
            let has_passed = self.browser.address().unwrap().ends_with("pass");
            self.plays(if has_passed { &[PASS, CELL] } else { &[CELL, PASS] });
        }
        self.has_ended();
    }

    /// Checks that the game is over, and that the address holds all of it.
    fn has_ended(&self) {
        let text = self.text("main [role=status]");
        let words = ["You win.", "The program wins.", "The game is a draw."];
        assert!(words.iter().any(|word| text.starts_with(word)), "{text}");
        let shown = || {
            self.run(
                "return ['main [role=status]', 'main svg.board'].map((part) => document.querySelector(part).outerHTML)",
            )
        };
        let end = shown();
        let address = self.browser.address().unwrap();
        self.open("/config");
        self.open(&address);
        assert_eq!(shown(), end, "{address}");
        assert_eq!(self.logged(), [""; 0]);
    }
}

/// Returns the name of a picture of a page: `overview`, `replay-game`, and `games-1` for a selected game.
fn file_name(page: &str, console: &str) -> String {
    let (path, query) = page.split_once('?').map_or((page, ""), |(path, query)| (path, query));
    let name = path.trim_start_matches(console).trim_matches('/').replace('/', "-");
    let name = if name.is_empty() { "overview".to_owned() } else { name };
    if query.is_empty() { name } else { name + "-1" }
}

/// Returns the script of axe, or `None` without a suitable Python.
fn axe() -> Option<String> {
    let requirements = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/python/axe-requirements.txt"));
    let packages = Path::new(env!("CARGO_TARGET_TMPDIR")).join("axe");
    let Some(python) = Python::with_exactly(requirements, &packages).unwrap() else {
        tests::skip_python("3.10");
        return None;
    };
    Some(std::fs::read_to_string(python.packages().join("axe_playwright_python/axe.min.js")).unwrap())
}

#[test]
fn visitors_follow_a_run_on_every_page_in_every_view_and_through_kills() {
    let (Some(mut tab), Some(axe)) = (Tab::start(""), axe()) else { return };
    let folder = tempfile::tempdir().unwrap();
    let options = ["--game", "connect_four", "--actors", "1"];
    let mut run = TrainingRun::with_console(folder.path(), folder.path(), &options).unwrap();
    run.start().unwrap();
    run.until("the console is announced", DEADLINE, |run| run.console().is_some()).unwrap();
    tab.console = run.console().unwrap();
    run.until("the console responds", DEADLINE, |_| tab.browser.open(&tab.console).is_ok()).unwrap();
    tab.logged();

    boards_change_by_themselves(&tab);
    let pages = tab.pages();
    for view in &VIEWS {
        let faults: Vec<String> = pages.iter().flat_map(|page| tab.faults(page, view, &axe)).collect();
        assert_eq!(faults, [""; 0]);
    }
    tab.look(&LIGHT);
    pages_work_with_a_keyboard(&tab, &pages);
    pages_work_without_scripts(&tab, &pages);
    // The first move is typed, the rest are clicks.
    tab.open("/play?simulations=8");
    let before = tab.browser.address().unwrap();
    tab.browser.write("main input[name=move]", &format!("4{ENTER}")).unwrap();
    tab.until_response(&before);
    tab.plays_to_the_end(&tab.browser.address().unwrap());

    tab.open("/");
    kills_show_and_go_away(&tab, &run);
    run.stop().unwrap();
    tab.until("the tab reports the lost console", PROMPT, "!document.querySelector('#connection').hidden");
}

fn boards_change_by_themselves(tab: &Tab) {
    tab.open("/");
    tab.until("a board is drawn", DEADLINE, "document.querySelector('#boards svg.board')");
    tab.run("window.first = document.querySelector('#boards svg.board').outerHTML");
    let changes =
        "window.first && ![first, undefined].includes(document.querySelector('#boards svg.board')?.outerHTML)";
    tab.until("the board changes without a reload", PROMPT, changes);
}

fn pages_work_with_a_keyboard(tab: &Tab, pages: &[String]) {
    let unreachable: Vec<String> = pages.iter().flat_map(|page| tab.unreachable(page)).collect();
    assert_eq!(unreachable, [""; 0]);
    tab.open("/config");
    // The link to the content comes first, then the navigation.
    tab.browser.press(&format!("{TAB}{TAB}{TAB}{ENTER}")).unwrap();
    tab.until("Enter follows a link", PROMPT, "location.pathname === '/games'");
    tab.until("games are drawn", DEADLINE, "document.querySelector('#games a')");
    tab.run("(window.focused = document.querySelector('#games a')).focus()");
    tab.until("the games are drawn again", PROMPT, "window.focused && !focused.isConnected");
    assert!(tab.holds("document.activeElement.closest('#games a')"), "a live page takes the focus away");
}

fn pages_work_without_scripts(tab: &Tab, pages: &[String]) {
    let switch = |is_off: bool| {
        tab.browser.devtools("Emulation.setScriptExecutionDisabled", &json!({ "value": is_off })).unwrap();
    };
    switch(true);
    for page in pages {
        tab.open(page);
        let text = tab.text("main");
        assert!(text.len() > 20, "{page}: {text}");
    }
    tab.open("/play?simulations=8");
    tab.plays(&["main svg a[aria-label='play 1']"]);
    tab.open("/");
    let loaded = tab.run("return performance.timeOrigin");
    tab.until("the page loads again", DEADLINE, &format!("performance.timeOrigin !== {loaded}"));
    tab.until("the page has boards", DEADLINE, "document.querySelector('#boards svg.board')");
    switch(false);
}

/// Kills the learner and the console while a page is open, which is not loaded again.
fn kills_show_and_go_away(tab: &Tab, run: &TrainingRun) {
    let has = |id: &str, text: &str| format!("document.querySelector('#{id}').textContent.includes({})", json!(text));
    tab.until("the page is live", PROMPT, &has("state", "processes respond"));
    tab.run("window.kept = true");
    run.kill("learner").unwrap();
    tab.until("the kill shows", PROMPT, &has("events", "learner was killed"));
    let is_back =
        format!("{} && !{}", has("events", "learner was restarted"), has("warnings", "learner stopped responding"));
    tab.until("the learner is back", DEADLINE, &is_back);
    run.kill("console").unwrap();
    let is_back = format!("{} && document.querySelector('#connection').hidden", has("events", "console was restarted"));
    tab.until("the tab connects again", DEADLINE, &is_back);
    assert!(tab.holds("window.kept"), "the page was loaded again");
    boards_change_by_themselves(tab);
}

/// The console of a run that has published random weights.
struct Untrained {
    console: Process,
    _folder: tempfile::TempDir,
}

impl Untrained {
    fn start(game: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let run = RunDirectory::new(folder.path(), "first").unwrap();
        run.create().unwrap();
        std::fs::write(run.config(), format!("[run]\ngame = \"{game}\"\n")).unwrap();
        run.keep_progress(&Progress { minutes: 1.0, ..Progress::default() }).unwrap();
        let weights = run.path().join("weights");
        std::fs::create_dir_all(&weights).unwrap();
        let rules = game.parse::<GameKind>().unwrap().rules();
        Published::random(rules.spec(), 1, 7).write(&weights);
        let words = ["console", "--run", "first", "--listen", "127.0.0.1:0", "--exit-with-parent", "--runs"];
        let mut arguments: Vec<OsString> = words.into_iter().map(OsString::from).collect();
        arguments.push(folder.path().into());
        let mut console = Process::without_admin("console", "zerofleet", arguments, folder.path()).unwrap();
        console.start().unwrap();
        wait_until("the console listens", DEADLINE, || Ok(console.console().is_some())).unwrap();
        Self { console, _folder: folder }
    }

    fn address(&self) -> String {
        self.console.console().unwrap()
    }
}

#[test]
fn go_is_played_from_the_empty_board_to_the_end_by_clicks() {
    let Some(mut tab) = Tab::start("") else { return };
    let console = Untrained::start("go-9");
    tab.console = console.address();
    tab.plays_to_the_end("/play?game=go-9&side=first&simulations=0");
}

#[test]
fn chess_is_played_to_the_end_and_to_mate_by_clicks_on_a_piece_and_a_square() {
    const FROM: [&str; 3] = [
        "main svg a[aria-label='move from f3']",
        "main svg a[aria-label='move from g1']",
        "main svg a[aria-label^='move from ']",
    ];
    const TO: [&str; 4] = [
        "main svg a[aria-label='play g1f3']",
        "main svg a[aria-label='play f3g1']",
        "main svg a[aria-label^='play ']",
        "main button[name=choice]",
    ];
    let Some(mut tab) = Tab::start("") else { return };
    let console = Untrained::start("chess");
    tab.console = console.address();
    // A knight goes out and back until the rules end the game. Without a search, the network repeats moves, too.
    tab.open("/play?game=chess&side=first&simulations=0");
    while !tab.holds(IS_OVER) {
        tab.plays(&FROM);
        tab.plays(&TO);
    }
    tab.has_ended();
    // The network cannot be expected to lose at once, so a game to mate goes on from an address.
    tab.open("/play?game=chess&side=second&simulations=4&moves=f2f3_e7e5_g2g4");
    tab.plays(&["main svg a[aria-label='move from d8']"]);
    tab.plays(&["main svg a[aria-label='play d8h4']"]);
    assert_eq!(tab.text("main [role=status]").trim(), "You win.");
    tab.has_ended();
}
