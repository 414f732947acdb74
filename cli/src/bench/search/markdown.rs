use super::report::{Report, Searched};

/// The report as a table for people and documents.
#[must_use]
pub fn markdown(report: &Report) -> String {
    let Report { cpu, target, cores, seconds, repeats, turn, seed, compared, searched } = report;
    let mut text = format!(
        "# Simulations/s of the tree alone\n\n\
         - machine: {cpu}, {target}, {cores} cores\n\
         - uniform priors, every position worth zero; games from start to end, every move from a fresh root with noise\n\
         - every number: the {turn} of {repeats} turns of {seconds} s; seed {seed}\n"
    );
    if let Some(compared) = compared {
        text += &format!("- ratio: to {}, measured on {}\n", compared.file, compared.cpu);
    }
    let ratio = compared.is_some();
    text += "\n| game | rule | simulations per move | threads | simulations/s | bytes per node |";
    text += if ratio { " ratio |\n" } else { "\n" };
    text += "|---|---|---:|---:|---:|---:|";
    text += if ratio { "---:|\n" } else { "\n" };
    for Searched { game, rule, simulations, threads, simulations_per_second, bytes_per_node, ratio: times } in searched
    {
        let millions = simulations_per_second / 1e6;
        text += &format!("| {game} | {rule} | {simulations} | {threads} | {millions:.2} M | {bytes_per_node:.0} |");
        if ratio {
            text += &format!(" {} |", times.map_or("–".to_owned(), |times| format!("{times:.2}")));
        }
        text += "\n";
    }
    text
}

#[cfg(test)]
mod tests;
