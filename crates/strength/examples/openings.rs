//! Prints solved positions of Connect Four as CSV: `openings SEED OPENINGS OTHERS`. OPENINGS positions have 8 to 11
//! stones, each of which takes up to minutes; OTHERS positions have 12 or more stones.
//!
//! See `crates/games/data/README.md` for the columns.

use std::io::{self, Write as _};

use games::GameKind;
use oracles::{LabelledPosition, connect_four_openings, draw};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut number = || arguments.next().ok_or("usage: openings SEED OPENINGS OTHERS");
    let (seed, openings, others) = (number()?.parse()?, number()?.parse()?, number()?.parse()?);
    let others = draw(&GameKind::ConnectFour, seed, others).expect("the game has an oracle");
    let mut out = io::stdout().lock();
    writeln!(out, "moves,band,c1,c2,c3,c4,c5,c6,c7")?;
    for LabelledPosition { actions, band, scores } in connect_four_openings(seed, openings).chain(others) {
        let moves: String = actions.iter().map(|action| (action.index() + 1).to_string()).collect();
        let scores = scores.iter().map(|score| score.map_or_else(String::new, |score| score.to_string()));
        writeln!(out, "{moves},{band},{}", scores.collect::<Vec<_>>().join(","))?;
        out.flush()?;
    }
    Ok(())
}
