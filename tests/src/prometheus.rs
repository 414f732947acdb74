//! Finds or downloads Prometheus, starts it on a cluster's metrics, and queries it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use serde_json::Value;
use service::net::{ReservedPort, reserve_ports};
use tempfile::TempDir;

use crate::process::{run, wait_until};

/// Interval that replaces all intervals of the deployed configuration, so that tests are short.
const INTERVAL: &str = "1s";
/// Exit status of `promtool check metrics` after complaints about readable metrics.
const LINT_STATUS: i32 = 3;
/// Time limit of a query.
const QUERY_TIMEOUT: Duration = Duration::from_secs(30);

/// The programs `prometheus` and `promtool`.
#[derive(Debug, Clone)]
pub struct PrometheusTools {
    prometheus: PathBuf,
    promtool: PathBuf,
}

impl PrometheusTools {
    /// Finds `$PROMETHEUS` or Prometheus on the path, each with `promtool` in the same directory, or else unpacks
    /// Debian's package below `folder`. The inner error is the human-readable reason why there is none.
    ///
    /// # Errors
    /// The directory cannot be used, or the package cannot be unpacked.
    pub fn find(folder: &Path) -> anyhow::Result<Result<Self, String>> {
        if let Some(named) = std::env::var_os("PROMETHEUS") {
            let prometheus = PathBuf::from(named);
            return Ok(Self::at(&prometheus).ok_or_else(|| format!("{} does not run", prometheus.display())));
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        if let Some(found) = std::env::split_paths(&path).find_map(|folder| Self::at(&folder.join("prometheus"))) {
            return Ok(Ok(found));
        }
        std::fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
        // Concurrent tests wait here, and then find the unpacked package.
        let lock = File::create(folder.join("prometheus.lock")).context("make a lock of the package")?;
        lock.lock().context("lock the package")?;
        let unpacked = folder.join("prometheus");
        let program = unpacked.join("usr/bin/prometheus");
        if let Some(found) = Self::at(&program) {
            return Ok(Ok(found));
        }
        std::fs::create_dir_all(&unpacked).context("make a folder for the package")?;
        // The package is downloaded and unpacked but not installed, which does not require root.
        let fetched = run(Command::new("apt-get").args(["download", "--quiet", "prometheus"]).current_dir(&unpacked));
        if let Err(error) = fetched {
            return Ok(Err(format!("no $PROMETHEUS, none on the path, and Debian's package cannot be had: {error:#}")));
        }
        let package = std::fs::read_dir(&unpacked).context("list the package")?.filter_map(Result::ok);
        let package = package.map(|entry| entry.path()).find(|path| path.extension().is_some_and(|end| end == "deb"));
        let package = package.context("find the package that was fetched")?;
        run(Command::new("dpkg-deb").arg("-x").arg(&package).arg(&unpacked)).context("unpack the package")?;
        Ok(Self::at(&program).ok_or_else(|| format!("{} does not run", program.display())))
    }

    fn at(prometheus: &Path) -> Option<Self> {
        let tools = Self { prometheus: prometheus.to_owned(), promtool: prometheus.with_file_name("promtool") };
        let runs = |program: &Path| run(Command::new(program).arg("--version")).is_ok();
        (runs(&tools.prometheus) && runs(&tools.promtool)).then_some(tools)
    }

    /// Runs `promtool` until it exits; returns the output.
    ///
    /// # Errors
    /// The command fails; the error contains the output.
    pub fn promtool(&self, arguments: &[&str]) -> anyhow::Result<String> {
        run(Command::new(&self.promtool).args(arguments))
    }

    /// Returns what `promtool check metrics` finds in the metrics of a process, one line each.
    ///
    /// # Errors
    /// The process does not respond, or the metrics cannot be parsed.
    pub fn check_metrics(&self, target: &Target) -> anyhow::Result<String> {
        let mut metrics = tempfile::tempfile().context("make a file for metrics")?;
        let mut answer = agent().get(format!("http://127.0.0.1:{}/metrics", target.admin)).call()?;
        metrics.write_all(answer.body_mut().read_to_string()?.as_bytes()).context("write the metrics")?;
        metrics.rewind().context("rewind the metrics")?;
        let output = Command::new(&self.promtool).args(["check", "metrics"]).stdin(metrics).output()?;
        let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
        let linted = output.status.success() || output.status.code() == Some(LINT_STATUS);
        ensure!(linted, "promtool ended with {}: {complaints}", output.status);
        Ok(complaints)
    }
}

/// A target for Prometheus to scrape: the service name, and the admin port on this machine.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// DNS name of the service in a deployment.
    pub service: &'static str,
    /// Admin port of the service on loopback.
    pub admin: u16,
}

/// Value of one series at one time.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Labels, including the metric name as `__name__` if the expression keeps it.
    pub labels: BTreeMap<String, String>,
    /// Value of the series.
    pub value: f64,
}

/// A running Prometheus server; it is killed on drop.
#[derive(Debug)]
pub struct Prometheus {
    child: Child,
    port: ReservedPort,
    folder: TempDir,
}

impl Prometheus {
    /// Starts Prometheus with the configuration in the directory `deployed`, but with other targets, and with
    /// `interval`, or one second, for all intervals.
    ///
    /// # Errors
    /// The configuration has an unexpected form, or Prometheus does not become ready.
    pub fn start(
        tools: &PrometheusTools,
        deployed: &Path,
        targets: &[Target],
        interval: Option<&str>,
    ) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("make a folder for Prometheus")?;
        let read = |name: &str| std::fs::read_to_string(deployed.join(name)).with_context(|| format!("read {name}"));
        let config = with_targets(&read("prometheus.yml")?, targets, interval.unwrap_or(INTERVAL))?;
        std::fs::write(folder.path().join("prometheus.yml"), config).context("write prometheus.yml")?;
        std::fs::write(folder.path().join("alerts.yml"), read("alerts.yml")?).context("write alerts.yml")?;
        let [port] = reserve_ports().context("find a free port")?;
        let address = port.address();
        let log = File::create(folder.path().join("log")).context("make a log")?;
        let child = Command::new(&tools.prometheus)
            .arg(format!("--config.file={}", folder.path().join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("share the log")?)
            .stderr(log)
            .spawn()
            .context("start Prometheus")?;
        let mut started = Self { child, port, folder };
        wait_until("Prometheus is ready", Duration::from_secs(60), || {
            if let Some(status) = started.child.try_wait()? {
                bail!("Prometheus ended with {status}:\n{}", started.log_text());
            }
            Ok(agent().get(format!("http://{address}/-/ready")).call().is_ok_and(|answer| answer.status() == 200))
        })?;
        Ok(started)
    }

    /// Returns host and port of the HTTP API.
    #[must_use]
    pub fn address(&self) -> String {
        self.port.address().to_string()
    }

    /// Returns the log.
    #[must_use]
    pub fn log_text(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Returns the current value of an expression.
    ///
    /// # Errors
    /// Prometheus rejects the expression; the error contains the response.
    pub fn query(&self, expression: &str) -> anyhow::Result<Vec<Sample>> {
        let data = self.api("query", &[("query", expression)])?;
        if data["resultType"] == "scalar" {
            return Ok(vec![Sample { labels: BTreeMap::new(), value: point(&data["result"])? }]);
        }
        let result = data["result"].as_array().context("read the result")?;
        result.iter().map(|one| Ok(Sample { labels: labels(&one["metric"]), value: point(&one["value"])? })).collect()
    }

    /// Returns the `data` of a response of the HTTP API.
    ///
    /// # Errors
    /// Prometheus rejects the request; the error contains the response.
    pub fn api(&self, what: &str, arguments: &[(&str, &str)]) -> anyhow::Result<Value> {
        let request = agent().get(format!("http://{}/api/v1/{what}", self.address()));
        let mut answer = request.query_pairs(arguments.iter().copied()).call().context("query Prometheus")?;
        let text = answer.body_mut().read_to_string().context("read the answer of Prometheus")?;
        let mut answer: Value = serde_json::from_str(&text).with_context(|| format!("read {text}"))?;
        ensure!(answer["status"] == "success", "Prometheus refuses {arguments:?}: {}", answer["error"]);
        Ok(answer["data"].take())
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // A kill is enough, because the data are not needed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn agent() -> ureq::Agent {
    let config = ureq::Agent::config_builder().timeout_global(Some(QUERY_TIMEOUT)).http_status_as_error(false);
    config.build().into()
}

fn labels(metric: &Value) -> BTreeMap<String, String> {
    let pairs = metric.as_object().into_iter().flatten();
    pairs.map(|(label, value)| (label.clone(), value.as_str().unwrap_or_default().to_owned())).collect()
}

/// Returns the value of a point: 1.5 for `[1700000000.0, "1.5"]`.
fn point(value: &Value) -> anyhow::Result<f64> {
    value[1].as_str().context("read the value of a point")?.parse().context("read the value of a point")
}

/// Returns the deployed configuration with fixed targets instead of DNS, and other intervals. The relabelling rules
/// stay: each target has the DNS name as a label.
fn with_targets(deployed: &str, targets: &[Target], interval: &str) -> anyhow::Result<String> {
    const DISCOVERY: &str = "    dns_sd_configs:";
    let (before, discovery) = deployed.split_once(&format!("{DISCOVERY}\n")).context("find dns_sd_configs")?;
    let is_inside = |line: &&str| line.starts_with("     ");
    let rest: Vec<&str> = discovery.lines().skip_while(is_inside).collect();
    let inside: Vec<&str> = discovery.lines().take_while(is_inside).collect();
    let names = inside.iter().find_map(|line| line.split_once("names: [")?.1.strip_suffix(']'));
    let names: Vec<&str> = names.context("find the names that DNS resolves")?.split(", ").collect();
    let mut config = String::new();
    for line in before.lines() {
        let key = line.split_once("_interval:").map(|(key, _)| key);
        config += &key.map_or_else(|| line.to_owned(), |key| format!("{key}_interval: {interval}"));
        config.push('\n');
    }
    config += "    static_configs:\n";
    for Target { service, admin } in targets {
        ensure!(names.contains(service), "no target is discovered by DNS for {service}");
        config +=
            &format!("      - targets: [\"127.0.0.1:{admin}\"]\n        labels: {{ __meta_dns_name: {service} }}\n");
    }
    Ok(config + &rest.join("\n") + "\n")
}
