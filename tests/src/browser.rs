//! Drives Chromium over WebDriver, which is JSON over HTTP.

use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::process::{run, wait_until};

/// Time limit of a command, far longer than any page loads.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum size of a response in bytes: a picture of a long page.
const RESPONSE_BYTES_MAX: u64 = 64 << 20;
/// Options of Chromium: no window, no sandbox, which root cannot use, no small `/dev/shm`, and no further requests.
const OPTIONS: [&str; 7] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-background-networking",
    "--no-first-run",
    "--no-proxy-server",
];
/// The digits of base 64.
const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// A Chromium without a window, which shows one page; it ends on drop.
#[derive(Debug)]
pub struct Browser {
    driver: Child,
    /// Address of the session.
    session: String,
    agent: ureq::Agent,
    _folder: TempDir,
}

impl Browser {
    /// Starts Chromium. The inner error is the human-readable reason why there is none.
    ///
    /// # Errors
    /// The browser starts, but does not respond.
    pub fn start() -> anyhow::Result<Result<Self, String>> {
        for program in ["chromium", "chromedriver"] {
            if run(Command::new(program).arg("--version")).is_err() {
                return Ok(Err(format!("{program} does not run; root installs it by `cargo xtask browser`")));
            }
        }
        let folder = tempfile::tempdir().context("make a folder for the browser")?;
        let path = folder.path().join("log");
        let log = File::create(&path).context("make a log of the browser")?;
        let driver = Command::new("chromedriver")
            .arg("--port=0")
            .env("TMPDIR", folder.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("share the log")?)
            .stderr(log)
            .spawn()
            .context("start chromedriver")?;
        let config = ureq::Agent::config_builder().timeout_global(Some(COMMAND_TIMEOUT)).http_status_as_error(false);
        let mut browser = Self { driver, session: String::new(), agent: config.build().into(), _folder: folder };
        let mut port = None;
        wait_until("chromedriver listens", COMMAND_TIMEOUT, || {
            let text = std::fs::read_to_string(&path).context("read the log of chromedriver")?;
            if let Some(status) = browser.driver.try_wait()? {
                bail!("chromedriver ended with {status}: {text}");
            }
            port =
                text.split_once("successfully on port ").and_then(|(_, rest)| Some(rest.split_once('.')?.0.to_owned()));
            Ok(port.is_some())
        })?;
        let sessions = format!("http://127.0.0.1:{}/session", port.context("it listens")?);
        let wanted = json!({
            "browserName": "chrome",
            "goog:chromeOptions": { "args": OPTIONS },
            "goog:loggingPrefs": { "browser": "ALL", "performance": "ALL" },
        });
        let started = browser.call("POST", &sessions, &json!({ "capabilities": { "alwaysMatch": wanted } }))?;
        browser.session = format!("{sessions}/{}", started["sessionId"].as_str().context("find the session")?);
        Ok(Ok(browser))
    }

    /// Opens an address, and waits until the page is loaded.
    ///
    /// # Errors
    /// The page cannot be loaded.
    pub fn open(&self, address: &str) -> anyhow::Result<()> {
        self.post("url", &json!({ "url": address })).map(drop)
    }

    /// Returns the address of the page.
    ///
    /// # Errors
    /// The browser does not respond.
    pub fn address(&self) -> anyhow::Result<String> {
        let address = self.call("GET", &format!("{}/url", self.session), &Value::Null)?;
        Ok(address.as_str().context("read the address")?.to_owned())
    }

    /// Returns the value that a script returns, after the end of a promise. Scripts run also where pages run none.
    ///
    /// # Errors
    /// The script fails.
    pub fn run(&self, script: &str) -> anyhow::Result<Value> {
        self.post("execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Clicks in the middle of the first element that a CSS selector matches.
    ///
    /// # Errors
    /// There is no such element, or another element covers it.
    pub fn click(&self, selector: &str) -> anyhow::Result<()> {
        let element = self.find(selector)?;
        self.post(&format!("element/{element}/click"), &json!({})).map(drop)
    }

    /// Types a text into the first element that a CSS selector matches.
    ///
    /// # Errors
    /// There is no such element.
    pub fn write(&self, selector: &str, text: &str) -> anyhow::Result<()> {
        let element = self.find(selector)?;
        self.post(&format!("element/{element}/value"), &json!({ "text": text })).map(drop)
    }

    /// Presses and releases keys one after the other, given by the characters of WebDriver.
    ///
    /// # Errors
    /// The browser does not respond.
    pub fn press(&self, keys: &str) -> anyhow::Result<()> {
        let press = |key: char| ["keyDown", "keyUp"].map(|kind| json!({ "type": kind, "value": key }));
        let presses: Vec<Value> = keys.chars().flat_map(press).collect();
        let keyboard = json!({ "type": "key", "id": "keyboard", "actions": presses });
        self.post("actions", &json!({ "actions": [keyboard] })).map(drop)
    }

    /// Sends a command of the DevTools protocol.
    ///
    /// # Errors
    /// The command fails.
    pub fn devtools(&self, command: &str, parameters: &Value) -> anyhow::Result<Value> {
        self.post("goog/cdp/execute", &json!({ "cmd": command, "params": parameters }))
    }

    /// Returns the messages in the console of the browser since the last call.
    ///
    /// # Errors
    /// The browser does not respond.
    pub fn messages(&self) -> anyhow::Result<Vec<String>> {
        let entries = self.post("se/log", &json!({ "type": "browser" }))?;
        let text = |entry: &Value| format!("{}: {}", entry["level"], entry["message"]);
        Ok(entries.as_array().into_iter().flatten().map(text).collect())
    }

    /// Returns the addresses that the browser has requested since the last call.
    ///
    /// # Errors
    /// The browser does not respond, or an entry of the log cannot be read.
    pub fn requests(&self) -> anyhow::Result<Vec<String>> {
        let entries = self.post("se/log", &json!({ "type": "performance" }))?;
        let mut addresses = Vec::new();
        for entry in entries.as_array().into_iter().flatten() {
            let text = entry["message"].as_str().context("read an event")?;
            let event: Value = serde_json::from_str(text).context("read an event")?;
            if event["message"]["method"] == "Network.requestWillBeSent" {
                let address = &event["message"]["params"]["request"]["url"];
                addresses.push(address.as_str().context("read an address")?.to_owned());
            }
        }
        Ok(addresses)
    }

    /// Returns a picture of the whole page as PNG.
    ///
    /// # Errors
    /// The picture cannot be taken.
    pub fn picture(&self) -> anyhow::Result<Vec<u8>> {
        let size = self.run(
            "const { scrollWidth, scrollHeight } = document.documentElement; return [scrollWidth, scrollHeight]",
        )?;
        let clip = json!({ "x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1 });
        let parameters = json!({ "clip": clip, "captureBeyondViewport": true });
        let picture = self.devtools("Page.captureScreenshot", &parameters)?;
        Ok(from_base64(picture["data"].as_str().context("read the picture")?))
    }

    fn find(&self, selector: &str) -> anyhow::Result<String> {
        let found = self.post("element", &json!({ "using": "css selector", "value": selector }))?;
        // The only member, with a name that the standard fixes.
        let id = found.as_object().and_then(|members| members.values().next()?.as_str());
        Ok(id.context("read the id of an element")?.to_owned())
    }

    fn post(&self, command: &str, body: &Value) -> anyhow::Result<Value> {
        self.call("POST", &format!("{}/{command}", self.session), body)
    }

    fn call(&self, method: &str, address: &str, body: &Value) -> anyhow::Result<Value> {
        let sent = match method {
            "GET" => self.agent.get(address).call(),
            "DELETE" => self.agent.delete(address).call(),
            _ => self.agent.post(address).content_type("application/json").send(body.to_string()),
        };
        let mut response = sent.with_context(|| format!("send {address}"))?;
        let is_success = response.status().is_success();
        let text = response.body_mut().with_config().limit(RESPONSE_BYTES_MAX).read_to_string();
        let mut answer: Value = serde_json::from_str(&text.context("read a response")?).context("read a response")?;
        let value = answer["value"].take();
        ensure!(is_success, "{}: {}", value["error"], value["message"]);
        Ok(value)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Without a session there is no browser to end, and the driver is killed in any case.
        let _ = self.call("DELETE", &self.session, &Value::Null);
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// Returns the bytes of a text in base 64; other characters are skipped.
fn from_base64(text: &str) -> Vec<u8> {
    let (mut bits, mut count, mut bytes) = (0_u32, 0, Vec::new());
    for digit in text.bytes().filter_map(|byte| (0_u32..).zip(DIGITS).find(|(_, digit)| **digit == byte)) {
        (bits, count) = ((bits << 6) | digit.0, count + 6);
        if count >= 8 {
            count -= 8;
            bytes.push(((bits >> count) & 0xff) as u8);
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::from_base64;

    #[test]
    fn base_64_is_decoded_with_and_without_padding() {
        let decoded =
            ["", "TQ==", "TWE=", "TWFu", "TWFu\nTWE"].map(|text| String::from_utf8(from_base64(text)).unwrap());
        assert_eq!(decoded, ["", "M", "Ma", "Man", "ManMa"]);
    }
}
