//! Opens a game record in SGF that a visitor sends. Start with [`open`].

use axum::body::Bytes;
use game::{Action, Game as _, Player};
use games::{AnyGame, AnyPosition, GameKind};
use maud::html;
use protocols::{BoardGame, Color, Move, Ply, sgf};
use strength::notation::Notation;

use crate::play::{Address, PATH};
use crate::play_page::Shown;
use crate::problem::{Problem, blocking};

/// Largest form with a record, in bytes.
pub(crate) const BYTES_MAX: usize = 256 << 10;
/// Maximum number of notes that are shown.
const NOTES_MAX: usize = 20;

/// Opens the record in a form: moves on to the first position, after a page with the notes of the reader if there are
/// any.
pub(crate) async fn open(form: Bytes) -> Result<Shown, Problem> {
    let Opened { address, notes } = blocking(move || read(&form).map_err(Problem::invalid)).await?;
    let address = address.link(PATH);
    if notes.is_empty() {
        return Ok(Shown::Moved(address));
    }
    let main = html! {
        h1 { "Game record" }
        p { "Parts of the record are unclear, or are different by the rules here:" }
        ul { @for note in notes.iter().take(NOTES_MAX) { li { (note) } } }
        p { a href=(address) { "Step through the game" } }
    };
    Ok(Shown::page(main))
}

/// A record as an address.
#[derive(Debug)]
struct Opened {
    address: Address,
    notes: Vec<String>,
}

/// Reads the record in a form. The error is a sentence.
fn read(form: &[u8]) -> Result<Opened, String> {
    let bytes = file(form).filter(|bytes| !bytes.is_empty()).ok_or("The form has no file.")?;
    let found = sgf::read(bytes).map_err(|error| format!("The file is not a game record: {error}."))?;
    let (setup, mut notes) = (&found.record.setup, found.notes);
    let family = match found.game {
        BoardGame::Go => "go",
        BoardGame::Othello => "othello",
        BoardGame::Gomoku => "gomoku",
        BoardGame::Hex => "hex",
    };
    let name = format!("{family}-{}", setup.size.width());
    let kind = name.parse::<GameKind>().map_err(|error| format!("{error}."))?;
    let rules = kind.rules();
    let notation = Notation::of(&rules).filter(|notation| notation.size() == setup.size);
    let notation = notation.ok_or("Boards are square here.")?;
    // Othello has stones at the start.
    let usual = rules.board(&rules.start()).map_or(0, |board| board.marks.iter().flatten().count());
    if ![0, usual].contains(&setup.stones.len()) {
        return Err("The record places stones before the first move, which the rules here do not have.".to_owned());
    }
    if let (AnyGame::Go(go), Some(komi)) = (&rules, found.komi)
        && komi != go.komi().points()
    {
        notes.push(format!("The record has komi {komi}; outcome and opinions here are for {}.", go.komi().points()));
    }
    let (mut position, mut actions) = (rules.start(), Vec::new());
    for (index, ply) in found.record.plies.iter().take_while(|ply| ply.played != Move::Resign).enumerate() {
        let Some(next) = actions_of(&rules, &mut position, notation, *ply) else {
            notes.push(format!("Move {} breaks the rules here; the game ends before it.", index + 1));
            break;
        };
        actions.extend(next);
    }
    let address = Address::of_actions(&kind, 0, actions).ok_or("The game is too long for an address.")?;
    Ok(Opened { address: Address { side: Player::First, simulations: 0, ply: Some(0), ..address }, notes })
}

/// Plays a move, after a pass of the other player if the record leaves it out; `None` if the move is illegal.
fn actions_of(rules: &AnyGame, position: &mut AnyPosition, notation: Notation, ply: Ply) -> Option<Vec<Action>> {
    let mover = Color::from(rules.to_move(position));
    let pass = (mover != ply.color).then_some(Ply { color: mover, played: Move::Pass });
    let play = |ply: Ply| {
        let action = notation.to_action(ply.color, ply.played)?;
        rules.try_play(position, action).ok().map(|_| action)
    };
    pass.into_iter().chain([ply]).map(play).collect()
}

/// Returns the content of the first part of a form with a file (RFC 7578).
fn file(form: &[u8]) -> Option<&[u8]> {
    let find = |part: &[u8]| form.windows(part.len()).position(|window| window == part);
    // The last line is the first line, the boundary, with two dashes.
    let (boundary, begin) = (find(b"\r\n")?, find(b"\r\n\r\n")? + 4);
    let end = form.len().checked_sub(boundary + "\r\n--\r\n".len())?;
    form.get(begin..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(record: &[u8]) -> Vec<u8> {
        let head = b"--b\r\nContent-Disposition: form-data; name=\"record\"; filename=\"a.sgf\"\r\n\r\n";
        [&head[..], record, b"\r\n--b--\r\n"].concat()
    }

    /// Returns the moves and the notes of a record.
    fn opened(record: &str) -> Result<(String, Vec<String>), String> {
        read(&form(record.as_bytes())).map(|Opened { address, notes }| (address.moves, notes))
    }

    #[test]
    fn the_file_of_a_form_is_the_content_of_the_first_part() {
        assert_eq!(file(&form(b"a\r\n\r\n\x80b")), Some(&b"a\r\n\r\n\x80b"[..]));
        assert_eq!(file(&form(b"")), Some(&b""[..]));
        let dashes = b"-".repeat(BYTES_MAX / 2);
        let long = [dashes.as_slice(), b"\r\n\r\n", dashes.as_slice()].concat();
        for broken in [&b""[..], b"\r\n\r\n", b"--b", b"--b\r\n\r\na", b"--b\r\n\r\na--b", long.as_slice()] {
            assert_eq!(file(broken), None, "{:?}", broken.get(..20));
        }
    }

    #[test]
    fn records_of_each_game_become_moves() {
        for (record, expected) in [
            ("(;GM[1]SZ[5];B[cc];W[];B[dd])", "C3_pass_D2"),
            // A player who moves twice in a row passed in between.
            ("(;GM[1]SZ[5];B[cc];B[dd])", "C3_pass_D2"),
            ("(;GM[11]SZ[5];B[b2];W[c3])", "b2_c3"),
            ("(;GM[4]SZ[15];B[hh])", "h8"),
            ("(;GM[2]SZ[6]AB[dc][cd]AW[cc][dd])", ""),
        ] {
            assert_eq!(opened(record), Ok((expected.to_owned(), Vec::new())), "{record}");
        }
    }

    #[test]
    fn what_the_rules_lack_is_refused_or_noted() {
        for (record, reason) in [
            ("(;GM[1]SZ[5]AB[cc];W[dd])", "places stones before the first move"),
            ("(;GM[1]SZ[5:4];B[cc])", "Boards are square here."),
            ("(;GM[1]SZ[25];B[cc])", "`go-25` is not a size of go"),
            ("(;GM[3];B[cc])", "The file is not a game record"),
            ("", "The form has no file."),
        ] {
            let error = opened(record).unwrap_err();
            assert!(error.contains(reason), "{record}: {error}");
        }
        let (moves, notes) = opened("(;GM[1]SZ[5]KM[0.5];B[cc];W[cc];B[dd])").unwrap();
        assert_eq!(moves, "C3");
        assert!(notes[0].starts_with("The record has komi 0.5;") && notes[1].starts_with("Move 2 breaks"), "{notes:?}");
    }
}
