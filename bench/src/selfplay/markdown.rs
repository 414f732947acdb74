use super::report::{EvaluatorSpeed, Report, SelfplaySpeed};

/// The report as a table for people and documents.
#[must_use]
pub fn markdown(report: &Report) -> String {
    let Report { cpu, target, cores, game, network, engine, libtorch_engine, threads, games, leaves, .. } = report;
    let Report { simulations, seconds, repeats, turn, seed, plain, whole, compared, .. } = report;
    let pinned = if report.pinned { ", each on a cpu of its own," } else { "" };
    let mut text = format!(
        "# Self-play of {game} with a network of {network}\n\n\
         - machine: {cpu}, {target}, {cores} cores\n\
         - {threads} threads{pinned} with {games} games each, {leaves} of whose leaves are in a batch; {simulations} simulations a move\n\
         - self-play evaluates with: {engine}\n\
         - libtorch: {libtorch_engine}\n\
         - every number: the {turn} of {repeats} turns of {seconds} s; seed {seed}\n"
    );
    if let Some(bytes) = report.peak_memory_bytes {
        text += &format!("- the process held {} MiB at most\n", bytes >> 20);
    }
    if let Some(compared) = compared {
        let ratio = |ratio: Option<f64>| ratio.map_or("–".to_owned(), |ratio| format!("{ratio:.2}"));
        let (evaluator, plain, whole) = (ratio(compared.evaluator), ratio(compared.plain), ratio(compared.whole));
        text += &format!(
            "- ratio to {}, measured on {}: evaluator alone {evaluator}, plain self-play {plain}, whole self-play {whole}\n",
            compared.file, compared.cpu
        );
    }
    if let Some(plain) = plain {
        text += "\n| | evaluations/s |\n|---|---:|\n";
        for (who, speeds) in [("its evaluator alone", &report.evaluator), ("libtorch alone", &report.libtorch)] {
            for EvaluatorSpeed { batch, evaluations_per_second } in speeds {
                text += &format!("| {who}, batch {batch} | {evaluations_per_second:.0} |\n");
            }
        }
        text +=
            &format!("| plain self-play, mean batch {:.1} | {:.0} |\n", plain.mean_batch, plain.evaluations_per_second);
        text += &format!("| **share of its evaluator's best batch** | **{}** |\n", percent(report.share));
        text += &format!("| share of libtorch's best batch | {} |\n", percent(report.share_of_libtorch));
    }
    text += "\n| self-play | positions/s | games/s | simulations/s | evaluations/s | batch fill | cache hits | experience, bytes a position |\n";
    text += "|---|---:|---:|---:|---:|---:|---:|---:|\n";
    if let Some(plain) = plain {
        text += &row("plain: no cache, no reuse", plain);
    }
    text += &row("whole", whole);
    text
}

fn row(name: &str, speed: &SelfplaySpeed) -> String {
    let SelfplaySpeed { positions_per_second, games_per_second, simulations_per_second, .. } = speed;
    format!(
        "| {name} | {positions_per_second:.0} | {games_per_second:.1} | {simulations_per_second:.0} | {:.0} | {} | {} | {:.0} |\n",
        speed.evaluations_per_second,
        percent(Some(speed.batch_fill)),
        percent(Some(speed.cache_hit_share)),
        speed.experience_bytes_per_position,
    )
}

fn percent(share: Option<f64>) -> String {
    share.map_or("–".to_owned(), |share| format!("{:.1} %", 100.0 * share))
}
