use super::cost::Cost;
use super::report::{Process, Rates, Report};
use crate::accelerator::Accelerator;
use crate::digits::{known_number as number, known_percent as percent};
use fleet::bottleneck::Bottleneck;

/// What is not known.
const MISSING: &str = "not measured";

/// The report as tables for people and documents.
#[must_use]
pub fn markdown(report: &Report) -> String {
    let Bottleneck { sentence, remedy, .. } = &report.bottleneck;
    let mut text = format!("# Where the time of a run goes\n\n{}\n**{sentence}** {remedy}\n\n", circumstances(report));
    text += &phases(report);
    text += &processes(report);
    text += &rates(&report.rates);
    text + &cost(&report.cost)
}

fn circumstances(report: &Report) -> String {
    let Report { cpu, target, cores, game, network, sets, actors, actor_threads, .. } = report;
    let known = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".to_owned());
    let mut text = format!(
        "- machine: {cpu}, {target}, {cores} cores\n\
         - run: {game}, network {network}, {actors} actor(s) of {actor_threads} thread(s){}\n\
         - self-play evaluates with {}; the learner trains on {}, {}\n\
         - measured: {:.1} s, {:.0} s after the first training step\n\
         - transfers: {}\n",
        sets.iter().map(|set| format!(", {set}")).collect::<String>(),
        known(&report.evaluator),
        known(&report.learner_device),
        known(&report.learner_precision),
        report.seconds,
        report.warm_up_seconds,
        report.transfers,
    );
    text += &accelerators(&report.accelerators);
    if let Some(compared) = &report.compared {
        text += &compared.in_words();
    }
    text
}

fn accelerators(accelerators: &[Accelerator]) -> String {
    let one = |Accelerator { name, busy_share, memory_bytes }: &Accelerator| {
        let busy = busy_share.map_or_else(|| MISSING.to_owned(), |share| percent(Some(share)));
        format!("- accelerator: {name}, busy {busy} of the time, {} in use\n", memory(*memory_bytes))
    };
    match accelerators {
        [] => "- accelerator: none here\n".to_owned(),
        some => some.iter().map(one).collect(),
    }
}

fn memory(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| MISSING.to_owned(), |bytes| format!("{:.0} MiB", bytes as f64 / f64::from(1 << 20)))
}

fn phases(report: &Report) -> String {
    let changes = report.compared.is_some();
    let mut text = "| threads | phase | wall time | share of the threads' time | share of all CPU time |".to_owned();
    text += if changes { " change |\n" } else { "\n" };
    text += "|---|---|---:|---:|---:|";
    text += if changes { "---:|\n" } else { "\n" };
    for threads in &report.threads {
        for time in &threads.phases {
            let (count, name) = (threads.count, threads.name);
            let cpu = time.cpu_share.map_or_else(|| MISSING.to_owned(), |share| percent(Some(share)));
            let (phase, seconds, share) = (time.phase, time.seconds, percent(Some(time.wall_share)));
            text += &format!("| {name} ({count}) | {phase} | {seconds:.2} s | {share} | {cpu} |");
            if changes {
                let points = |change: f64| format!("{:+.1} points", 100.0 * change);
                text += &format!(" {} |", time.wall_share_change.map_or("–".to_owned(), points));
            }
            text += "\n";
        }
    }
    text + "\n"
}

fn processes(report: &Report) -> String {
    let mut text = "| process | CPU time | share of all CPU time | of it sockets and timers | memory |\n".to_owned();
    text += "|---|---:|---:|---:|---:|\n";
    let seconds =
        |seconds: Option<f64>| seconds.map_or_else(|| MISSING.to_owned(), |seconds| format!("{seconds:.2} s"));
    for Process { name, cpu_seconds, cpu_share, sockets_cpu_seconds, memory_bytes } in &report.processes {
        let share = cpu_share.map_or_else(|| MISSING.to_owned(), |share| percent(Some(share)));
        // Where no thread has phases there is nothing to tell apart.
        let sockets = if cpu_seconds.is_some() && sockets_cpu_seconds.is_none() {
            "–".to_owned()
        } else {
            seconds(*sockets_cpu_seconds)
        };
        let (cpu, memory) = (seconds(*cpu_seconds), memory(*memory_bytes));
        text += &format!("| {name} | {cpu} | {share} | {sockets} | {memory} |\n");
    }
    text + "\n"
}

fn rates(rates: &Rates) -> String {
    format!(
        "Self-play: {} games/s, {} moves/s, {} evaluations/s in batches of {}, {} simulations/s. Learner: {} training \
         steps/s, {} positions/s. Replay server: {} items in the window; its rate limiter held up inserts {} and samples {} \
         of the time.\n\n",
        number(rates.games_per_second),
        number(rates.positions_per_second),
        number(rates.evaluations_per_second),
        number(rates.mean_batch),
        number(rates.simulations_per_second),
        number(rates.steps_per_second),
        number(rates.training_positions_per_second),
        number(rates.window_items),
        percent(rates.insert_wait_share),
        percent(rates.sample_wait_share),
    )
}

fn cost(cost: &Cost) -> String {
    let Cost { epochs, epoch_positions, hours, positions, price_per_hour, price } = cost;
    let what = format!("{epochs} epochs of {epoch_positions:.0} training positions");
    let Some(hours) = hours else { return format!("{what}: unknown, for nothing was trained on.\n") };
    let mut text = format!("{what} take {hours:.2} hours at this speed");
    if let Some(positions) = positions {
        text += &format!(", in which self-play makes {} moves", number(Some(*positions)));
    }
    if let Some((price, per_hour)) = price.zip(*price_per_hour) {
        text += &format!(", and cost {price:.2} at {per_hour} per hour");
    }
    text + ".\n"
}

#[cfg(test)]
mod tests {
    use super::super::report::Compared;
    use super::super::tests::report;
    use super::*;

    #[test]
    fn every_phase_of_every_kind_of_threads_is_a_row() {
        let text = markdown(&report());
        assert!(text.contains("\n| self-play (2) | evaluation | 8.00 s | 40.0 % | 50.0 % |\n"), "{text}");
        assert!(text.contains("\n| training (1) | backward | 5.00 s | 50.0 % | 25.0 % |\n"), "{text}");
        assert!(!text.contains("change"), "{text}");
    }

    #[test]
    fn the_bottleneck_comes_with_what_to_change() {
        let text = markdown(&report());
        assert!(text.contains("\n**The learner is the bottleneck: it trains 90 % of its time"), "{text}");
        assert!(text.contains("lower replay.samples_per_insert"), "{text}");
    }

    #[test]
    fn processes_and_cost_follow() {
        let text = markdown(&report());
        assert!(text.contains("\n| actor-0 | 9.00 s | 56.2 % | 1.00 s | 64 MiB |\n"), "{text}");
        let cost = "10 epochs of 100000 training positions take 0.14 hours at this speed, in which self-play makes 250.0k moves, \
                and cost 0.42 at 3 per hour.\n";
        assert!(text.ends_with(cost), "{text}");
    }

    #[test]
    fn what_the_system_does_not_tell_is_said_to_be_not_measured() {
        let mut report = report();
        report.threads[0].phases[0].cpu_share = None;
        report.processes[0].cpu_seconds = None;
        report.processes[0].cpu_share = None;
        report.processes[0].sockets_cpu_seconds = None;
        report.processes[0].memory_bytes = None;
        let text = markdown(&report);
        assert!(text.contains("\n| actor-0 | not measured | not measured | not measured | not measured |\n"), "{text}");
        assert!(text.contains("| self-play (2) | selection | 2.00 s | 10.0 % | not measured |\n"), "{text}");
    }

    #[test]
    fn accelerators_are_named_with_what_they_did() {
        let mut report = report();
        assert!(markdown(&report).contains("\n- accelerator: none here\n"));
        let busy = Accelerator { name: "A".to_owned(), busy_share: Some(0.25), memory_bytes: Some(3 << 20) };
        report.accelerators = vec![busy.clone(), Accelerator { busy_share: None, ..busy }];
        let text = markdown(&report);
        assert!(text.contains("\n- accelerator: A, busy 25.0 % of the time, 3 MiB in use\n"), "{text}");
        assert!(text.contains("\n- accelerator: A, busy not measured of the time, 3 MiB in use\n"), "{text}");
    }

    #[test]
    fn changes_stand_beside_what_they_are_to() {
        let mut report = report();
        report.compared = Some(Compared {
            file: "before.json".to_owned(),
            cpu: "Another CPU".to_owned(),
            positions_ratio: Some(1.5),
            training_positions_ratio: None,
        });
        report.threads[0].phases[0].wall_share_change = Some(-0.125);
        let text = markdown(&report);
        let change = "- change: to before.json, measured on Another CPU; moves/s 1.50 times, positions trained on/s not measured";
        assert!(text.contains(change), "{text}");
        assert!(text.contains("| self-play (2) | selection | 2.00 s | 10.0 % | 12.5 % | -12.5 points |\n"), "{text}");
        assert!(text.contains("| self-play (2) | evaluation | 8.00 s | 40.0 % | 50.0 % | – |\n"), "{text}");
    }
}
