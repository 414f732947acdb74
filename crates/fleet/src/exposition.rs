//! Reads and parses the metrics of an admin port, in Prometheus' text format.

use std::net::SocketAddr;
use std::time::Duration;

/// Maximum accepted response in bytes.
const BYTES_MAX: u64 = 4 << 20;

/// One line of an exposition: a metric with labels and a value.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Name of the metric.
    pub name: String,
    /// Labels, in the order of the text.
    pub labels: Vec<(String, String)>,
    /// Value of the metric.
    pub value: f64,
}

impl Series {
    /// Returns the value of the label `name`.
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(label, _)| label == name).map(|(_, value)| value.as_str())
    }
}

/// All series of one process at one time.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Exposition {
    /// Series, in the order of the text.
    pub series: Vec<Series>,
}

impl Exposition {
    /// Parses the text format. Invalid lines are skipped, so that a faulty process cannot stop the monitor.
    pub fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        Self { series: lines.filter_map(parse_line).collect() }
    }

    /// Returns the value of the first series `name` with all of `labels`, if it is finite.
    pub fn get(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let fits = |series: &&Series| {
            series.name == name && labels.iter().all(|(label, value)| series.label(label) == Some(*value))
        };
        self.series.iter().find(fits).map(|series| series.value).filter(|value| value.is_finite())
    }
}

/// Returns the increase of a counter between two readings. A counter that fell was reset, so that the whole value
/// counts.
pub fn increase(before: f64, now: f64) -> f64 {
    if now < before { now } else { now - before }
}

/// Requests the metrics of the process at `admin`; `None` on an error, a timeout or another status than 200.
pub fn scrape(agent: &ureq::Agent, admin: SocketAddr) -> Option<Exposition> {
    let (_, text) = get(agent, admin, "metrics").filter(|(status, _)| *status == 200)?;
    Some(Exposition::parse(&text))
}

/// The response of a process to a poll of the admin port.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// Metrics of the process.
    pub exposition: Exposition,
    /// True if the process is ready.
    pub is_ready: bool,
    /// Text of the readiness page: the reason why the process is not ready.
    pub reason: String,
}

/// Requests metrics and readiness of the process at `admin`; `None` on an error or a timeout.
pub fn ask(agent: &ureq::Agent, admin: SocketAddr) -> Option<Answer> {
    let exposition = scrape(agent, admin)?;
    let (status, reason) = get(agent, admin, "readyz")?;
    Some(Answer { exposition, is_ready: status == 200, reason })
}

/// Requests a page of an admin port; returns status and text, `None` on an error or timeout.
pub fn get(agent: &ureq::Agent, admin: SocketAddr, page: &str) -> Option<(u16, String)> {
    let mut response = agent.get(format!("http://{admin}/{page}")).call().ok()?;
    let body = response.body_mut().with_config().limit(BYTES_MAX).lossy_utf8(true).read_to_string().ok()?;
    Some((response.status().as_u16(), body))
}

/// Returns an HTTP client for admin ports, with a timeout for the whole request. The client follows no redirects and
/// ignores proxy variables of the environment.
pub fn agent(timeout: Duration) -> ureq::Agent {
    let config = ureq::config::Config::builder()
        .timeout_global(Some(timeout))
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(None);
    config.build().new_agent()
}

fn parse_line(line: &str) -> Option<Series> {
    let (series, value) = line.trim().rsplit_once(' ')?;
    let value = value.parse().ok()?;
    let Some((name, labels)) = series.split_once('{') else {
        return Some(Series { name: series.to_owned(), labels: Vec::new(), value });
    };
    let labels = parse_labels(labels.strip_suffix('}')?)?;
    Some(Series { name: name.to_owned(), labels, value })
}

fn parse_labels(mut rest: &str) -> Option<Vec<(String, String)>> {
    let mut labels = Vec::new();
    while !rest.is_empty() {
        let (name, quoted) = rest.split_once("=\"")?;
        let mut value = String::new();
        let mut characters = quoted.char_indices();
        let end = loop {
            match characters.next()? {
                (end, '"') => break end,
                (_, '\\') => match characters.next()?.1 {
                    'n' => value.push('\n'),
                    other => value.push(other),
                },
                (_, other) => value.push(other),
            }
        };
        labels.push((name.trim_start_matches(',').trim().to_owned(), value));
        rest = &quoted[end + 1..];
    }
    Some(labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_escapes_and_comments_are_parsed() {
        let text =
            "# TYPE a counter\na 3\nb{part=\"policy\",who=\"say \\\"x\\\"\"} 0.5\nb{part=\"value\"} NaN\nrubbish\n";
        let exposition = Exposition::parse(text);
        assert_eq!(exposition.get("a", &[]), Some(3.0));
        assert_eq!(exposition.get("b", &[("part", "policy")]), Some(0.5));
        assert_eq!(exposition.series[1].label("who"), Some("say \"x\""));
        assert_eq!(exposition.get("b", &[("part", "value")]), None, "a value that is not finite counts as missing");
        assert_eq!(exposition.get("c", &[]), None);
    }
}
