//! Search for the soonest win of one player, the attacker, against the defender.
//!
//! The attacker connects the top with the bottom; for the other player the board is mirrored. A first search
//! determines the winner. A second search determines whether the winner, as the attacker, wins with at most k more
//! stones. With k from 1 upwards, the first success is the soonest win: the defender delays it as long as possible.
//!
//! A win has a carrier, the cells that the winner needs. A reply outside the carrier changes nothing, so the search
//! is limited to replies in the intersection of all carriers found so far, the mustplay region (Hayward et al.,
//! "Solving 7×7 Hex with domination, fill-in, and virtual connections", 2005). Paths with more than k empty cells are
//! useless, and so are cells on no other path.

use super::board::{Board, Cells, STONES_MAX, Side, distance, on_paths};
use super::table::{Key, Table};
use crate::value::Value;

/// Number of stones beyond a shortest path from which it is worthwhile to determine the winner first.
const PROVED_MIN: usize = 2;

#[derive(Debug)]
pub(super) struct Solver {
    board: Board,
    /// Winners of positions.
    proofs: Table<Proof>,
    /// Numbers of stones with which the attacker wins.
    limits: Table<Limits>,
}

/// The winner of a position, and the carrier of the win.
#[derive(Debug, Clone, Copy)]
enum Proof {
    /// The player to move wins.
    Win(Cells),
    /// The player to move loses.
    Loss(Cells),
}

impl Default for Proof {
    fn default() -> Self {
        Self::Loss(0)
    }
}

/// Known limits on the number of stones with which the attacker wins.
#[derive(Debug, Clone, Copy, Default)]
struct Limits {
    /// Cells required for the win with `wins` stones.
    carrier: Cells,
    /// The attacker does not win with this many stones.
    fails: u8,
    /// The attacker wins with this many stones; 0 if unknown.
    wins: u8,
}

impl Solver {
    pub(super) fn new(size: usize) -> Self {
        Self { board: Board::new(size), proofs: Table::new(), limits: Table::new() }
    }

    /// Returns the value of a position for the player to move, without a swap. Both sets of stones are in the frame
    /// of the player to move, who connects the top with the bottom. The game is not over.
    pub(super) fn value(&mut self, own: Cells, opponent: Cells) -> Value {
        let mut stones = 1..=STONES_MAX;
        if let Proof::Win(_) = self.prove(Side::Attacker, own, opponent) {
            let soonest = stones.find(|&stones| self.attack(own, opponent, stones).is_some());
            return Value::won_in(2 * soonest.expect("the attacker wins") - 1);
        }
        let [attacker, defender] = [opponent, own].map(|stones| self.board.mirrored(stones));
        let soonest = stones.find(|&stones| self.defend(attacker, defender, stones).is_some());
        Value::lost_in(2 * soonest.expect("the attacker wins"))
    }

    /// Returns true if the player to move wins, without a swap.
    #[cfg(test)]
    pub(super) fn wins(&mut self, own: Cells, opponent: Cells) -> bool {
        matches!(self.prove(Side::Attacker, own, opponent), Proof::Win(_))
    }

    /// Returns the winner of a position, with `side` to move. The game is not over.
    fn prove(&mut self, side: Side, own: Cells, other: Cells) -> Proof {
        let empty = self.board.empty(own, other);
        let own_paths = self.shortest_paths(side, own, other, empty);
        if own_paths.stones == 1 {
            return Proof::Win(lowest(own_paths.cells));
        }
        let other_paths = self.shortest_paths(side.opponent(), other, own, empty);
        // The cells where the opponent would win at once.
        let threats = if other_paths.stones == 1 { other_paths.cells } else { 0 };
        if threats.count_ones() >= 2 {
            return Proof::Loss(lowest(threats) | lowest(threats & !lowest(threats)));
        }
        let (key, is_turned) = match side {
            Side::Attacker => self.key(own, other, Key::attack),
            Side::Defender => self.key(other, own, Key::defence),
        };
        if let Some(known) = self.proofs.get(key) {
            return self.turned_proof(is_turned, known);
        }
        let mustplay = if threats == 0 { empty } else { threats };
        let (shared, single) = (own_paths.cells & other_paths.cells, own_paths.cells ^ other_paths.cells);
        let proof = self.prove_by([shared, single, !(shared | single)], side, own, other, mustplay, threats);
        self.proofs.put(key, self.turned_proof(is_turned, proof));
        proof
    }

    /// Returns the winner of a position in which the player to move can only win in the mustplay region. Cells in the
    /// first of `groups` are tried first. `carrier` is a part of the carrier for the opponent's win.
    fn prove_by(
        &mut self,
        groups: [Cells; 3],
        side: Side,
        own: Cells,
        other: Cells,
        mut mustplay: Cells,
        mut carrier: Cells,
    ) -> Proof {
        for group in groups {
            while let Some(cell) = self.board.most_central(mustplay & group) {
                match self.prove(side.opponent(), other, own | 1 << cell) {
                    Proof::Loss(needed) => return Proof::Win(needed | 1 << cell),
                    Proof::Win(needed) => {
                        carrier |= needed;
                        mustplay &= needed;
                    }
                }
            }
        }
        Proof::Loss(carrier)
    }

    /// Returns the carrier of a win with at most `stones` more stones and the attacker to move; `None` if there is no
    /// such win. The attacker's edges are not connected.
    fn attack(&mut self, attacker: Cells, defender: Cells, stones: usize) -> Option<Cells> {
        let reach = self.board.reach_both(Side::Attacker, attacker, defender, stones);
        let distance = distance(&reach[0], self.board.edges(Side::Attacker)[1], stones)?;
        let empty = self.board.empty(attacker, defender);
        if distance == 1 {
            return Some(lowest(on_paths(&reach, empty, 1)));
        }
        let (key, is_turned) = self.key(attacker, defender, Key::attack);
        if let Some(known) = self.known(key, stones) {
            return known.map(|carrier| self.turned_if(is_turned, carrier));
        }
        let mut is_lost = || matches!(self.prove(Side::Attacker, attacker, defender), Proof::Loss(_));
        if stones >= distance + PROVED_MIN && is_lost() {
            return None;
        }
        // The attacker's shortest paths first, and on them the cells that block the defender's.
        let (shortest, all) = (on_paths(&reach, empty, distance), on_paths(&reach, empty, stones));
        let blocking = self.shortest_paths(Side::Defender, defender, attacker, empty).cells;
        let longer = all & !shortest;
        let groups = [shortest & blocking, shortest & !blocking, longer & blocking, longer & !blocking];
        let carrier = groups.into_iter().find_map(|group| self.attack_on(group, attacker, defender, stones));
        self.learn(key, stones, carrier.map(|carrier| self.turned_if(is_turned, carrier)));
        carrier
    }

    /// Returns the carrier of a win with the first stone on one of `cells`.
    fn attack_on(&mut self, mut cells: Cells, attacker: Cells, defender: Cells, stones: usize) -> Option<Cells> {
        while let Some(cell) = self.board.most_central(cells) {
            if let Some(carrier) = self.defend(attacker | 1 << cell, defender, stones - 1) {
                return Some(carrier | 1 << cell);
            }
            cells &= !(1 << cell);
        }
        None
    }

    /// Returns the carrier of a win with at most `stones` more stones and the defender to move; `None` if there is no
    /// such win. The attacker's edges are not connected.
    fn defend(&mut self, attacker: Cells, defender: Cells, stones: usize) -> Option<Cells> {
        let reach = self.board.reach_both(Side::Attacker, attacker, defender, stones);
        let distance = distance(&reach[0], self.board.edges(Side::Attacker)[1], stones)?;
        let empty = self.board.empty(attacker, defender);
        // The cells where the attacker wins at once: the defender can take one.
        let threats = if distance == 1 { on_paths(&reach, empty, 1) } else { 0 };
        if threats.count_ones() >= 2 {
            return Some(lowest(threats) | lowest(threats & !lowest(threats)));
        }
        let (key, is_turned) = self.key(attacker, defender, Key::defence);
        if let Some(known) = self.known(key, stones) {
            return known.map(|carrier| self.turned_if(is_turned, carrier));
        }
        let mut is_lost = || matches!(self.prove(Side::Defender, defender, attacker), Proof::Win(_));
        if stones >= distance + PROVED_MIN && is_lost() {
            return None;
        }
        let replies = if threats == 0 { on_paths(&reach, empty, stones) } else { threats };
        let carrier = self.answer_all(attacker, defender, stones, replies).map(|carrier| carrier | threats);
        self.learn(key, stones, carrier.map(|carrier| self.turned_if(is_turned, carrier)));
        carrier
    }

    /// Returns the joint carrier of the attacker's wins against all `replies`; `None` if a reply refutes the win.
    fn answer_all(&mut self, attacker: Cells, defender: Cells, stones: usize, replies: Cells) -> Option<Cells> {
        let [top, bottom] = self.board.edges(Side::Attacker);
        let mut by_distance = Vec::with_capacity(replies.count_ones() as usize);
        for cell in self.board.outwards(replies) {
            let reach = self.board.reach(top, attacker, defender | 1 << cell, stones);
            // A reply that leaves the attacker too few stones refutes the win without a search.
            by_distance.push((distance(&reach, bottom, stones)?, cell));
        }
        // Replies that delay the attacker most refute a win most often.
        by_distance.sort_by_key(|&(distance, _)| std::cmp::Reverse(distance));
        let (mut mustplay, mut carrier) = (replies, 0);
        for (_, cell) in by_distance {
            if mustplay >> cell & 1 == 1 {
                let needed = self.attack(attacker, defender | 1 << cell, stones)?;
                carrier |= needed;
                mustplay &= needed;
            }
        }
        Some(carrier)
    }

    /// Returns the carrier of a known win with at most `stones` more stones, `Some(None)` for a known failure, `None`
    /// if unknown.
    fn known(&self, key: Key, stones: usize) -> Option<Option<Cells>> {
        let Limits { carrier, fails, wins } = self.limits.get(key)?;
        if wins > 0 && stones >= usize::from(wins) {
            return Some(Some(carrier));
        }
        (stones <= usize::from(fails)).then_some(None)
    }

    /// Stores the result for at most `stones` more stones.
    fn learn(&mut self, key: Key, stones: usize, carrier: Option<Cells>) {
        let stones = u8::try_from(stones).expect("a board has at most 25 stones");
        let known = self.limits.get(key).unwrap_or_default();
        let limits = match carrier {
            Some(carrier) => Limits { carrier, wins: stones, ..known },
            None => Limits { fails: stones, ..known },
        };
        self.limits.put(key, limits);
    }

    /// Returns the shortest paths of a player between both edges.
    fn shortest_paths(&self, side: Side, own: Cells, other: Cells, empty: Cells) -> Paths {
        let reach = self.board.reach_both(side, own, other, STONES_MAX);
        let stones = distance(&reach[0], self.board.edges(side)[1], STONES_MAX);
        let stones = stones.expect("the edges of the opponent are not connected");
        Paths { stones, cells: on_paths(&reach, empty, stones) }
    }

    /// Returns the smaller of two keys, for the position and for its half turn, and true for the half turn.
    fn key(&self, attacker: Cells, defender: Cells, key: fn(Cells, Cells) -> Key) -> (Key, bool) {
        let turned = [attacker, defender].map(|stones| self.board.turned(stones));
        let is_turned = turned < [attacker, defender];
        (if is_turned { key(turned[0], turned[1]) } else { key(attacker, defender) }, is_turned)
    }

    fn turned_if(&self, is_turned: bool, cells: Cells) -> Cells {
        if is_turned { self.board.turned(cells) } else { cells }
    }

    fn turned_proof(&self, is_turned: bool, proof: Proof) -> Proof {
        match proof {
            Proof::Win(cells) => Proof::Win(self.turned_if(is_turned, cells)),
            Proof::Loss(cells) => Proof::Loss(self.turned_if(is_turned, cells)),
        }
    }
}

/// The shortest paths of a player between both edges.
#[derive(Debug, Clone, Copy)]
struct Paths {
    /// Number of stones that complete a shortest path.
    stones: usize,
    /// Empty cells on the paths.
    cells: Cells,
}

/// Returns the lowest cell of a set.
fn lowest(cells: Cells) -> Cells {
    cells & cells.wrapping_neg()
}
