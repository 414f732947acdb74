use super::{Ablation, Step};

/// The ablation as a table for people and documents.
pub(super) fn markdown(ablation: &Ablation) -> String {
    let Ablation { cpu, target, cores, game, network, simulations, seconds, repeats, turn, seed, .. } = ablation;
    let mut text = format!(
        "# What each optimisation of self-play is worth\n\n\
         - machine: {cpu}, {target}, {cores} cores\n\
         - {game}, network {network}, {simulations} simulations a move\n\
         - each row also goes without what the rows above it go without\n\
         - every number: the {turn} of {repeats} turns of {seconds} s, each a process of its own; seed {seed}\n\n\
         | without | positions/s | worth | over naive | evaluations/s | mean batch | evaluator | peak memory, MiB | experience, bytes a position |\n\
         |---|---:|---:|---:|---:|---:|---|---:|---:|\n"
    );
    for step in &ablation.steps {
        let Step { without, engine, positions_per_second, over_naive, evaluations_per_second, mean_batch, .. } = step;
        let worth = step.worth.map_or("–".to_owned(), |worth| format!("{worth:.2}×"));
        let memory = step.peak_memory_bytes.map_or("–".to_owned(), |bytes| (bytes >> 20).to_string());
        text += &format!(
            "| {without} | {positions_per_second:.1} | {worth} | {over_naive:.1}× | {evaluations_per_second:.0} | {mean_batch:.1} \
             | {engine} | {memory} | {:.0} |\n",
            step.experience_bytes_per_position
        );
    }
    text += &format!(
        "\nEverything over nothing: **{:.1}×** in positions/s, **{:.1} %** less memory for a position's experience.\n",
        ablation.full_over_naive,
        100.0 * ablation.experience_saved
    );
    text
}
