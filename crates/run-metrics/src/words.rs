//! Formats metrics as the words that screen, summary, `top` and console share.
//!
//! The functions take [`RunMetrics`] or single values and return one line of text. A missing value is [`MISSING`].

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

pub use figures::table::{MISSING, percent};
use inference::categorical::{inverse_transform, transform};
use run_file::learner::SUPPORT_MAX;
use service::devices::CPU;

use crate::rows::{LimiterWait, Row};
use crate::{DeviceUse, Health, RunMetrics};

/// Minimum fraction of targets beyond the support that causes a warning.
const BEYOND_SHARE_MIN: f64 = 0.01;
/// The first second of the year 10000, beyond the date format.
const DATE_END: Duration = Duration::from_secs(253_402_300_800);

/// Returns warnings about lost accelerators, computations without graphs, lost episodes and unlearnable targets, as
/// name and text; empty in a healthy run.
pub fn warnings(r: &RunMetrics) -> Vec<(&'static str, String)> {
    let roles = r.health.lost_devices.join(" and ");
    let device = (!roles.is_empty()).then(|| {
        ("GPU lost", format!("{roles} on the CPU after a fault of the accelerator; the next session tries it"))
    });
    let graphs = r.health.without_graphs.join("; ");
    let graphs = (!graphs.is_empty()).then_some(("no graphs", graphs));
    let lost = lost(&r.health).map(|text| ("lost", text));
    let targets = beyond_support(&r.health).map(|text| ("targets", text));
    device.into_iter().chain(graphs).chain(lost).chain(targets).collect()
}

/// Formats the number of lost episodes; `None` if there are none.
fn lost(health: &Health) -> Option<String> {
    let [lost, failures] = [health.lost_episodes, health.environment_failures].map(|count| count.unwrap_or(0.0));
    (lost + failures > 0.0)
        .then(|| format!("{} episodes, in {} environment failures", count(Some(lost)), count(Some(failures))))
}

/// Formats the warning that targets lie beyond the network's support, with a remedy; `None` if the fraction is too low.
pub fn beyond_support(health: &Health) -> Option<String> {
    let share = health.beyond_support_share.filter(|share| *share >= BEYOND_SHARE_MIN)?;
    let (support, largest) = (health.support?, health.target_magnitude_max?);
    let needed = transform(largest).ceil();
    let remedy = if needed <= SUPPORT_MAX as f64 {
        format!("start a new run with network.support = {needed:.0}, or scale the rewards down")
    } else {
        let end = inverse_transform(SUPPORT_MAX as f64);
        format!("scale the rewards down: the largest network.support, {SUPPORT_MAX}, ends at {end:.0}")
    };
    Some(format!(
        "{} of the values and rewards lie beyond network.support = {support:.0}, which ends at {:.0}, and are \
         indistinguishable to the network; the largest is {}; {remedy}",
        percent(Some(share)),
        inverse_transform(support),
        number(Some(largest)),
    ))
}

/// Formats the items in the replay window, and how often training has passed over it if known: `24.1k, 3.2 passes`.
pub fn window(r: &RunMetrics) -> String {
    let passes = r.window_passes.map(|passes| format!(", {} passes", number(Some(passes))));
    count(r.window_items) + &passes.unwrap_or_default()
}

/// Formats the number of permanently refused trajectories; `None` if there are none.
pub fn refused(r: &RunMetrics) -> Option<String> {
    Some(r.health.refused()).filter(|refused| *refused > 0.0).map(|refused| count(Some(refused)))
}

/// Formats the repetition of positions in the latest stored games; `None` if not measured. The last numbers cover
/// games from the empty board, by bands of eight plies.
pub fn distinct(r: &RunMetrics) -> Option<String> {
    let share = |part: &str| r.distinct.get(part).copied();
    let (overall, top) = (percent(Some(share("overall")?)), percent(share("top_1000")));
    let bands =
        ["empty/0-7", "empty/8-15", "empty/16-23", "empty/24-"].map(|part| whole(share(part).map(|it| 100.0 * it)));
    Some(format!("distinct {overall} · top 1,000 {top} · by 8 plies {} %", bands.join(", ")))
}

/// Formats engines as one line: `actor cpu avx512-f32, learner cuda bf16`.
pub fn engines_line(engines: &BTreeMap<String, String>) -> String {
    engines.iter().map(|(role, engine)| format!("{role} {engine}")).collect::<Vec<_>>().join(", ")
}

/// Formats devices, one per line: `cuda H100 80GB HBM3 (actor, learner): busy 87 %, 12.3 of 85.0 GB`. A run on CPUs
/// alone has the line `cpu`.
pub fn device_lines(devices: &[DeviceUse]) -> Vec<String> {
    match devices {
        [] => Vec::new(),
        _ if devices.iter().all(|used| used.device == CPU) => vec![CPU.to_owned()],
        _ => devices.iter().map(device_line).collect(),
    }
}

/// Formats the use of the device as one line. Unknown values are left out.
fn device_line(used: &DeviceUse) -> String {
    let roles: Vec<&str> = used.roles.iter().map(String::as_str).collect();
    // Leaves out the manufacturer, which `cuda` implies, so that the line fits a terminal.
    let name = used.name.as_deref().map(|name| format!(" {}", name.trim_start_matches("NVIDIA ")));
    let by_run = used.run_busy_share.map(|share| format!(" ({:.0} % by the run)", 100.0 * share)).unwrap_or_default();
    let busy = used.busy_share.map(|share| format!("busy {:.0} %{by_run}", 100.0 * share));
    let gigabytes = |bytes: f64| number(Some(bytes / 1e9));
    let memory = used.memory().map(|held| match used.memory_bytes {
        Some(total) => format!("{} of {} GB", gigabytes(held), gigabytes(total)),
        None => format!("{} GB", gigabytes(held)),
    });
    let figures: Vec<String> = busy.into_iter().chain(memory).collect();
    let figures = if figures.is_empty() { String::new() } else { format!(": {}", figures.join(", ")) };
    let device = used.gpu.as_ref().map_or_else(|| used.device.clone(), |gpu| format!("GPU {gpu}"));
    format!("{device}{} ({}){figures}", name.unwrap_or_default(), roles.join(", "))
}

/// Formats the accuracy on solved positions and the rating; `None` without either.
pub fn strength(r: &RunMetrics) -> Option<String> {
    let solved = (!r.accuracy.is_empty()).then(|| {
        let [raw, searched] = ["raw", "search"].map(|search| percent(r.accuracy_of(search, "preserving")));
        format!("solved positions {raw} raw, {searched} with search")
    });
    let rated = r.elo.map(|_| format!("Elo {}", elo(r)));
    let parts: Vec<String> = solved.into_iter().chain(rated).collect();
    (!parts.is_empty()).then(|| parts.join(" · "))
}

/// Formats a rating with the confidence interval.
pub fn elo(r: &RunMetrics) -> String {
    match (r.elo, r.elo_low, r.elo_high) {
        (Some(elo), Some(low), Some(high)) => format!("{elo:.0} ({low:.0} to {high:.0})"),
        (Some(elo), ..) => format!("{elo:.0}"),
        (None, ..) => MISSING.to_owned(),
    }
}

/// Formats a mean return with the confidence interval.
pub fn mean_return(r: &RunMetrics) -> String {
    match (r.return_mean, r.return_low, r.return_high) {
        (Some(mean), Some(low), Some(high)) => {
            format!("{} ({} to {})", number(Some(mean)), number(Some(low)), number(Some(high)))
        }
        (mean, ..) => number(mean),
    }
}

/// Formats the losses. The total is weighted; only learned models have reward and consistency losses.
pub fn losses(r: &RunMetrics) -> String {
    if r.loss_total.is_none() {
        let is_trained = r.steps.is_some_and(|steps| steps > 0.0);
        return if is_trained { "not reported" } else { "no training step yet" }.to_owned();
    }
    let [total, policy, value] = [r.loss_total, r.loss_policy, r.loss_value].map(precise);
    let learned = |name: &str, loss: Option<f64>| {
        loss.filter(|&loss| loss > 0.0).map(|loss| format!(" · {name} {loss:.3}")).unwrap_or_default()
    };
    let (reward, consistency) = (learned("reward", r.loss_reward), learned("consistency", r.loss_consistency));
    format!("{total}: policy {policy} · value {value}{reward}{consistency}")
}

/// Formats losses and accuracies of the latest validated version on held-out games; `None` without validation. Missing
/// measures are left out.
pub fn validation(r: &RunMetrics) -> Option<String> {
    let mut parts = vec![format!("policy {:.3}", r.validation_loss_policy?)];
    parts.extend(r.validation_loss_value.map(|loss| format!("value {loss:.3}")));
    parts.extend(r.validation_policy_accuracy.map(|share| format!("best move {}", percent(Some(share)))));
    parts.extend(r.validation_calibration_error.map(|error| format!("calibration {}", percent(Some(error)))));
    Some(parts.join(" · "))
}

/// Formats the number of processes, and the number in each state.
pub fn counted(rows: &[Row]) -> String {
    let with = |state: &str| rows.iter().filter(|row| row.state == state).count();
    let plural = if rows.len() == 1 { "process" } else { "processes" };
    let mut words = format!("{} {plural}, {} ready", rows.len(), with("ready"));
    for state in ["not ready", "no reply", "lost"] {
        if with(state) > 0 {
            write!(words, ", {} {state}", with(state)).expect("strings grow");
        }
    }
    words
}

/// Formats the rates of a run.
pub fn rates(metrics: &RunMetrics) -> String {
    let named = [
        (metrics.games_per_second, "games/s"),
        (metrics.positions_per_second, "moves/s"),
        (metrics.evaluations_per_second, "evaluations/s"),
        (metrics.inserts_per_second, "inserts/s"),
        (metrics.samples_per_second, "samples/s"),
        (metrics.steps_per_second, "steps/s"),
    ];
    named.map(|(rate, name)| format!("{} {name}", number(rate))).join(", ")
}

/// Formats the content of all replay servers.
pub fn replay(metrics: &RunMetrics) -> String {
    let refused = refused(metrics).map(|refused| format!(", {refused} games refused")).unwrap_or_default();
    format!(
        "{} items of {} games, window {}, log {} MB, {} samples per insert{refused}",
        number(metrics.replay_items),
        number(metrics.replay_trajectories),
        window(metrics),
        number(metrics.replay_bytes.map(|bytes| bytes / 1e6)),
        number(metrics.samples_per_insert),
    )
}

/// Formats the waits for rate limiters: who waits, how long and why.
pub fn limited(waits: &[LimiterWait]) -> String {
    if waits.is_empty() {
        return "neither side waits".to_owned();
    }
    let sentences = waits.iter().map(|LimiterWait { side, reason, share }| {
        let blocked = match side.as_str() {
            "inserts" => "actors wait",
            "samples" => "the learner waits",
            other => other,
        };
        let cause = match reason.as_str() {
            "min_items" => "too few items",
            "inserts" => "the learner is ahead",
            "samples" => "the actors are ahead",
            "nothing_to_draw" => "no item may be sampled",
            other => other,
        };
        format!("{blocked} {:.0} % of the time ({cause})", 100.0 * share.min(1.0))
    });
    sentences.collect::<Vec<_>>().join(", ")
}

/// Formats a time in seconds as `0:42`, `12:05` or `1:00:00`.
pub fn clock(seconds: f64) -> String {
    let seconds = seconds.max(0.0) as u64;
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

/// Formats a duration, such as `42s`, `12:05`, `7h12` or `12d`.
pub fn span(seconds: Option<f64>) -> String {
    match seconds {
        None => MISSING.to_owned(),
        Some(seconds) if seconds < 3600.0 => clock(seconds),
        Some(seconds) if seconds < 86_400.0 => {
            format!("{:.0}h{:02.0}", (seconds / 3600.0).floor(), (seconds % 3600.0 / 60.0).floor())
        }
        Some(seconds) => format!("{:.0}d", (seconds / 86_400.0).floor().min(99_999.0)),
    }
}

/// Converts a time to Unix time in seconds; 0 before 1970.
pub fn unix_seconds(time: SystemTime) -> f64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// Formats a Unix time as date, hour and minute in UTC; empty for a reading without a time.
pub fn date(unix_seconds: f64) -> String {
    let since = Duration::try_from_secs_f64(unix_seconds).ok().filter(|since| !since.is_zero() && *since < DATE_END);
    let Some(time) = since.and_then(|since| SystemTime::UNIX_EPOCH.checked_add(since)) else { return String::new() };
    let text = humantime::format_rfc3339_seconds(time).to_string();
    format!("{} {} UTC", &text[..10], &text[11..16])
}

/// Formats a number with about three digits, in at most six characters: `0.42`, `812`, `24.1k`, `3.05M`, `1e18`.
pub fn number(value: Option<f64>) -> String {
    match value {
        None => MISSING.to_owned(),
        Some(value) if value.abs() >= 1e12 => format!("{value:.0e}"),
        Some(value) if value.abs() >= 1e9 => format!("{:.1}G", value / 1e9),
        Some(value) if value.abs() >= 1e7 => format!("{:.1}M", value / 1e6),
        Some(value) if value.abs() >= 1e6 => format!("{:.2}M", value / 1e6),
        Some(value) if value.abs() >= 1e4 => format!("{:.1}k", value / 1e3),
        Some(value) if value.abs() >= 100.0 => format!("{value:.0}"),
        Some(value) if value.abs() >= 1.0 || value == 0.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.2}"),
    }
}

/// Formats a count: `7`, `9876`, `24.1k`.
pub fn count(value: Option<f64>) -> String {
    if value.is_some_and(|value| value.abs() < 1e4) { whole(value) } else { number(value) }
}

fn precise(value: Option<f64>) -> String {
    value.map_or_else(|| MISSING.to_owned(), |value| format!("{value:.3}"))
}

/// Formats a whole number: `7`, `24100`.
#[must_use]
pub fn whole(value: Option<f64>) -> String {
    match value {
        None => MISSING.to_owned(),
        Some(value) if value.abs() >= 1e7 => format!("{value:.0e}"),
        Some(value) => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the warning for a support of 25, if `share` of the targets lie beyond and the largest magnitude is
    /// `largest`.
    fn warning(share: f64, largest: f64) -> Option<String> {
        let (support, target_magnitude_max) = (Some(25.0), Some(largest));
        beyond_support(&Health {
            support,
            beyond_support_share: Some(share),
            target_magnitude_max,
            ..Health::default()
        })
    }

    #[test]
    fn targets_beyond_the_support_are_reported_from_a_hundredth_on_with_the_support_that_holds_them() {
        assert_eq!(warning(0.009, 700.0), None);
        let found = warning(0.01, 175_000.0).unwrap();
        assert!(
            found.starts_with("1.0 % of the values and rewards lie beyond network.support = 25, which ends at 642")
        );
        // h(175,000) = √175,001 − 1 + 175 = 592.3.
        assert!(found.contains("the largest is 175.0k; start a new run with network.support = 593"), "{found}");
    }

    #[test]
    fn repetition_is_one_line_in_which_bands_that_are_not_measured_are_missing() {
        assert_eq!(distinct(&RunMetrics::default()), None);
        let parts = [("overall", 0.471), ("top_1000", 0.53), ("empty/0-7", 0.031), ("empty/16-23", 0.55)];
        let shares = parts.map(|(part, share)| (part.to_owned(), share)).into();
        let line = distinct(&RunMetrics { distinct: shares, ..RunMetrics::default() }).unwrap();
        assert_eq!(line, "distinct 47.1 % · top 1,000 53.0 % · by 8 plies 3, –, 55, – %");
    }

    #[test]
    fn the_window_is_shown_with_the_passes_over_it_once_they_are_known() {
        let metrics = RunMetrics { window_items: Some(24_100.0), ..RunMetrics::default() };
        assert_eq!(window(&metrics), "24.1k");
        assert_eq!(window(&RunMetrics { window_passes: Some(3.21), ..metrics }), "24.1k, 3.2 passes");
    }

    #[test]
    fn a_device_is_one_line_with_its_roles_and_what_is_known_of_it() {
        let gpu = DeviceUse {
            device: "cuda".to_owned(),
            name: Some("NVIDIA H100 80GB HBM3".to_owned()),
            roles: ["learner".to_owned(), "actor".to_owned()].into(),
            busy_share: Some(0.871),
            memory_used_bytes: Some(12.34e9),
            memory_bytes: Some(85e9),
            ..DeviceUse::default()
        };
        let line = device_line(&gpu);
        assert_eq!(line, "cuda H100 80GB HBM3 (actor, learner): busy 87 %, 12.3 of 85.0 GB");
        let second = DeviceUse { gpu: Some("1".to_owned()), ..gpu.clone() };
        assert_eq!(device_line(&second), line.replace("cuda", "GPU 1"));
        let shared = DeviceUse { run_busy_share: Some(0.5), ..gpu.clone() };
        assert_eq!(device_line(&shared), line.replace("87 %", "87 % (50 % by the run)"));
        let bare = DeviceUse { name: None, busy_share: None, memory_used_bytes: None, ..gpu.clone() };
        assert_eq!(device_line(&bare), "cuda (actor, learner)");
        let cpu = DeviceUse { device: CPU.to_owned(), roles: ["arena".to_owned()].into(), ..DeviceUse::default() };
        assert_eq!(device_lines(&[gpu, cpu.clone()]), [line, "cpu (arena)".to_owned()]);
        assert_eq!(device_lines(&[cpu]), ["cpu"]);
        assert_eq!(device_lines(&[]), [""; 0]);
    }

    #[test]
    fn dates_are_those_of_the_calendar_and_a_missing_time_has_none() {
        for (unix_seconds, expected) in [
            (951_782_399.0, "2000-02-28 23:59 UTC"),
            (951_782_400.0, "2000-02-29 00:00 UTC"),
            (1_709_251_199.0, "2024-02-29 23:59 UTC"),
            (4_107_542_400.0, "2100-03-01 00:00 UTC"),
            (0.0, ""),
            (f64::INFINITY, ""),
        ] {
            assert_eq!(date(unix_seconds), expected);
        }
    }

    #[test]
    fn targets_beyond_every_support_must_be_scaled() {
        let found = warning(1.0, 1e9).unwrap();
        assert!(found.contains("scale the rewards down: the largest network.support, 1024, ends at 3958"), "{found}");
    }
}
