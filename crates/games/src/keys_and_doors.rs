//! Keys and doors: in a grid world, an agent fetches a key, unlocks a door and reaches the goal beyond the door.
//!
//! The rules are from Minigrid's `DoorKey` (Chevalier-Boisvert et al. 2023, `minigrid/envs/doorkey.py`); the system
//! tests compare every step. The agent sees only the cells ahead that walls and the door leave in view, computed in
//! `view`. Start with [`KeysAndDoors`].

mod view;

use game::{Action, Board, Game, ObservationShape, Outcome};

use crate::entry::{Entry, Variants};
use crate::environment::{Constants, every_action_is_legal, hash, named_actions, one_player};
use crate::generator::Generator;
use crate::grid;
use crate::side::Side;

/// The registry entry of keys and doors; the size is a side of the grid, including walls.
pub const ENTRY: Entry =
    Entry::new("keys_and_doors", Variants::Sizes(Size::sizes(6)), include_str!("../presets/keys_and_doors.toml"));

const ACTIONS: [&str; 7] = ["left", "right", "forward", "pickup", "drop", "toggle", "done"];
const TURN_LEFT: u16 = 0;
const TURN_RIGHT: u16 = 1;
const FORWARD: u16 = 2;
const PICK_UP: u16 = 3;
const DROP: u16 = 4;
const TOGGLE: u16 = 5;

/// Number of cells along a side of the grid, including walls, 5 to 16.
pub type Size = Side<5, 16>;

/// Implements keys and doors on one grid size.
///
/// A wall with a locked door divides the grid. Agent and key start on the left, the goal is in the lower right
/// corner; the seed draws wall, door, key and agent like Minigrid. The actions turn the agent left or right, move it
/// forward, pick up the key ahead, drop it there, open or close the door ahead, and do nothing (`done`, as in
/// Minigrid). The goal ends the episode with the reward 1 − 0.9 n / m after n of at most m = 10 · size² steps; every
/// other reward is 0, and after m steps the episode is truncated.
///
/// Observation `[3, 7, 7]`: Minigrid's view, with the agent in the middle of the last row, looking up. Planes: index
/// of the object / 10, colour / 5, and state / 2; all 0 where the agent sees nothing.
#[derive(Debug, Clone)]
pub struct KeysAndDoors {
    constants: Constants,
    size: u8,
}

/// Holds a position of keys and doors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Position {
    agent: Cell,
    facing: Facing,
    /// Column of the dividing wall.
    wall: u8,
    door_row: u8,
    door: Door,
    /// Cell of the key; `None` while the agent carries it.
    key: Option<Cell>,
    steps: u16,
    /// Number of cells along a side.
    size: u8,
}

/// The coordinates of a cell, from 0 at the top left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Cell {
    column: u8,
    row: u8,
}

/// The direction of the agent, in Minigrid's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Facing {
    Right,
    Down,
    Left,
    Up,
}

/// The state of the door, in Minigrid's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Door {
    Open,
    Closed,
    Locked,
}

/// The content of a cell, without the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Object {
    Empty,
    Wall,
    Door(Door),
    Key,
    Goal,
}

impl Facing {
    const ALL: [Self; 4] = [Self::Right, Self::Down, Self::Left, Self::Up];

    /// Returns the direction after `quarters` quarter turns to the right.
    const fn turned(self, quarters: usize) -> Self {
        Self::ALL[(self as usize + quarters) % 4]
    }

    /// Returns the column and row offsets of one cell forward.
    const fn forward(self) -> (i8, i8) {
        match self {
            Self::Right => (1, 0),
            Self::Down => (0, 1),
            Self::Left => (-1, 0),
            Self::Up => (0, -1),
        }
    }
}

impl KeysAndDoors {
    /// Returns the environment for this grid size.
    #[must_use]
    pub fn new(size: Size) -> Self {
        let cells = size.get();
        let view = usize::from(view::SIDE);
        let observation = ObservationShape { planes: 3, height: view, width: view };
        let constants = Constants::new(ENTRY.name_of(cells), ACTIONS.len(), observation, 10 * cells * cells);
        Self { constants, size: size.0 }
    }
}

impl Position {
    /// Returns column, row and direction of the agent (0 right, 1 down, 2 left, 3 up), column of the wall, row and
    /// state of the door (0 open, 1 closed, 2 locked), and column and row of the key, −1 while the agent carries it.
    #[must_use]
    pub fn numbers(&self) -> [i8; 8] {
        let [key_column, key_row] = self.key.map_or([-1; 2], |key| [key.column, key.row].map(u8::cast_signed));
        let [column, row, wall, door_row] =
            [self.agent.column, self.agent.row, self.wall, self.door_row].map(u8::cast_signed);
        [column, row, self.facing as i8, wall, door_row, self.door as i8, key_column, key_row]
    }

    fn goal(&self) -> Cell {
        Cell { column: self.size - 2, row: self.size - 2 }
    }

    fn is_at_goal(&self) -> bool {
        self.agent == self.goal()
    }

    /// Returns the content of a cell, ignoring the agent. A cell outside the grid is a wall.
    fn object_at(&self, cell: Cell) -> Object {
        let inside = 1..self.size - 1;
        if !inside.contains(&cell.column) || !inside.contains(&cell.row) {
            Object::Wall
        } else if cell.column == self.wall {
            if cell.row == self.door_row { Object::Door(self.door) } else { Object::Wall }
        } else if self.key == Some(cell) {
            Object::Key
        } else if cell == self.goal() {
            Object::Goal
        } else {
            Object::Empty
        }
    }

    /// Returns the content of a cell, including the agent.
    fn shown(&self, row: u8, column: u8) -> Option<grid::Object> {
        let cell = Cell { column, row };
        match self.object_at(cell) {
            _ if cell == self.agent => Some(("agent", ['>', 'v', '<', '^'][self.facing as usize])),
            Object::Empty => None,
            Object::Wall => Some(("wall", '#')),
            Object::Door(Door::Open) => Some(("open door", '\'')),
            Object::Door(Door::Closed) => Some(("closed door", '+')),
            Object::Door(Door::Locked) => Some(("locked door", 'L')),
            Object::Key => Some(("key", 'k')),
            Object::Goal => Some(("goal", '*')),
        }
    }

    /// Returns the cell ahead of the agent. The agent is never in the outermost cells.
    fn front(&self) -> Cell {
        let (columns, rows) = self.facing.forward();
        let Cell { column, row } = self.agent;
        Cell { column: column.wrapping_add_signed(columns), row: row.wrapping_add_signed(rows) }
    }

    fn act(&mut self, action: u16) {
        let front = self.front();
        let object = self.object_at(front);
        match (action, object) {
            (TURN_LEFT, _) => self.facing = self.facing.turned(3),
            (TURN_RIGHT, _) => self.facing = self.facing.turned(1),
            (FORWARD, Object::Empty | Object::Goal | Object::Door(Door::Open)) => self.agent = front,
            (PICK_UP, Object::Key) => self.key = None,
            (DROP, Object::Empty) if self.key.is_none() => self.key = Some(front),
            (TOGGLE, Object::Door(Door::Open)) => self.door = Door::Closed,
            (TOGGLE, Object::Door(Door::Closed)) => self.door = Door::Open,
            (TOGGLE, Object::Door(Door::Locked)) if self.key.is_none() => self.door = Door::Open,
            _ => {}
        }
    }
}

impl Game for KeysAndDoors {
    type Position = Position;

    one_player!();
    every_action_is_legal!();
    named_actions!(ACTIONS);

    fn start_from(&self, seed: u64) -> Position {
        let mut generator = Generator::new(seed);
        let mut below = |count: u8| u8::try_from(generator.below(count.into())).expect("an index below a byte");
        let size = self.size;
        let wall = 2 + below(size - 4);
        // Cells to the left of the wall, column by column.
        let (rows, cells) = (size - 2, (wall - 1) * (size - 2));
        let cell = |index: u8| Cell { column: 1 + index / rows, row: 1 + index % rows };
        let agent = below(cells);
        let facing = Facing::ALL[usize::from(below(4))];
        let door_row = 1 + below(size - 3);
        // Any cell except the agent's.
        let key = below(cells - 1);
        let key = key + u8::from(key >= agent);
        let (agent, key) = (cell(agent), Some(cell(key)));
        Position { agent, facing, wall, door_row, door: Door::Locked, key, steps: 0, size }
    }

    fn play(&self, position: &mut Position, action: Action) -> f32 {
        debug_assert!(self.is_legal(position, action), "{action} is not legal");
        position.act(action.0);
        position.steps += 1;
        if !position.is_at_goal() {
            return 0.0;
        }
        let share = f64::from(position.steps) / self.constants.spec.max_plies as f64;
        (1.0 - 0.9 * share) as f32
    }

    fn outcome(&self, position: &Position) -> Option<Outcome> {
        let reached = position.is_at_goal().then_some(Outcome::Finished);
        reached.or_else(|| self.constants.truncation(position.steps))
    }

    fn observe(&self, position: &Position, planes: &mut [f32]) {
        view::observe(position, planes);
    }

    fn hash(&self, position: &Position) -> u64 {
        let numbers = position.numbers().map(i8::cast_unsigned);
        hash([u64::from_le_bytes(numbers), position.steps.into()])
    }

    /// Renders the grid: the agent is an arrow, `#` a wall, `k` the key, `*` the goal; the door is `L` if locked, `+`
    /// if closed and `'` if open.
    fn render(&self, position: &Position) -> String {
        let carries = if position.key.is_none() { "\ncarries the key" } else { "" };
        grid::render_objects((self.size, self.size), |row, column| position.shown(row, column)) + carries
    }

    fn board(&self, position: &Position) -> Option<Board> {
        let size = (self.size, self.size);
        Some(grid::board_of_objects(self, position, size, |row, column| position.shown(row, column)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, VecDeque};

    use super::*;

    fn game(size: u8) -> KeysAndDoors {
        KeysAndDoors::new(Size::new(size).unwrap())
    }

    /// Returns the minimum number of steps from a position to the goal, by breadth-first search over all positions.
    fn shortest(game: &KeysAndDoors, start: Position) -> u16 {
        let mut queue = VecDeque::from([(start, 0)]);
        let mut seen = HashMap::new();
        while let Some((position, steps)) = queue.pop_front() {
            for action in 0..ACTIONS.len() as u16 {
                let mut next = position;
                if game.play(&mut next, Action(action)) > 0.0 {
                    return steps + 1;
                }
                // Positions that differ only in the number of steps are equal here.
                next.steps = 0;
                if seen.insert(next, ()).is_none() {
                    queue.push_back((next, steps + 1));
                }
            }
        }
        panic!("the goal cannot be reached from\n{}", game.render(&start));
    }

    #[test]
    fn every_layout_can_be_solved_and_the_reward_falls_with_the_steps() {
        for size in [5, 6, 8] {
            let game = game(size);
            for seed in 0..30 {
                let start = game.start_from(seed);
                let steps = shortest(&game, start);
                // At least: turn to the key, pick it up, turn to the door, open it, go through.
                assert!((6..60).contains(&steps), "size {size}, seed {seed}: {steps} steps");
            }
        }
    }

    #[test]
    fn the_goal_ends_the_episode_with_the_published_reward() {
        let game = game(5);
        let position = Position { agent: Cell { column: 3, row: 2 }, facing: Facing::Down, steps: 99, ..game.start() };
        let mut position = position;
        let reward = game.play(&mut position, Action(FORWARD));
        assert_eq!(game.outcome(&position), Some(Outcome::Finished));
        assert!((reward - (1.0 - 0.9 * 100.0 / 250.0)).abs() < 1e-6, "{reward}");
    }

    #[test]
    fn an_episode_without_the_goal_is_truncated_after_ten_steps_per_cell() {
        let game = game(5);
        let mut position = game.start();
        for _ in 0..250 {
            assert_eq!(game.outcome(&position), None);
            assert!(game.play(&mut position, Action(TURN_LEFT)) == 0.0);
        }
        assert_eq!(game.outcome(&position), Some(Outcome::Truncated));
    }

    #[test]
    fn a_locked_door_opens_only_with_the_key() {
        let game = game(5);
        let start = game.start();
        let facing_door = Cell { column: start.wall - 1, row: start.door_row };
        let far = Some(Cell { column: 1, row: 3 });
        let mut position = Position { agent: facing_door, facing: Facing::Right, key: far, ..start };
        position.act(TOGGLE);
        position.act(FORWARD);
        assert_eq!((position.door, position.agent), (Door::Locked, facing_door));
        position.key = None;
        position.act(TOGGLE);
        position.act(FORWARD);
        assert_eq!((position.door, position.agent.column), (Door::Open, start.wall));
    }

    #[test]
    fn the_starts_of_the_smallest_grid_are_uniform_over_all_layouts() {
        let game = game(5);
        const DRAWS: u32 = 48_000;
        let mut counts: HashMap<Position, u32> = HashMap::new();
        for seed in 0..DRAWS {
            *counts.entry(game.start_from(seed.into())).or_default() += 1;
        }
        // Three cells for the agent, two for the key, four directions, two doors.
        assert_eq!(counts.len(), 48);
        // Six standard deviations of a count with mean 1,000.
        assert!(counts.values().all(|count| count.abs_diff(1000) < 190), "{counts:?}");
    }

    #[test]
    fn the_grid_is_drawn() {
        let position = Position {
            agent: Cell { column: 1, row: 1 },
            facing: Facing::Down,
            wall: 2,
            door_row: 2,
            door: Door::Locked,
            key: Some(Cell { column: 1, row: 3 }),
            steps: 0,
            size: 5,
        };
        assert_eq!(game(5).render(&position), "#####\n#v#.#\n#.L.#\n#k#*#\n#####");
    }
}
