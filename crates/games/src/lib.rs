//! The games: tic-tac-toe, Connect Four, Hex.
