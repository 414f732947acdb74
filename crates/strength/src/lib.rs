//! Measures the strength of players: solved positions, matches, Elo with confidence intervals, evaluation episodes.
//!
//! On each [`solved::SolvedPosition`] the good moves are counted as [`solved::Accuracy`]. [`matches::play`] plays a
//! [`contestant::Searcher`] against a [`contestant::RandomMover`], a [`contestant::PlayoutMover`], an
//! [`alpha_beta::AlphaBetaMover`], another version, or a [`gtp_engine::GtpEngine`], from [`matches::openings`]; in tiny
//! games [`exhaustive::check`] plays every line. The [`ledger::Ledger`] holds the [`ledger::Tally`] of all games of a
//! run, the source of Elo ([`rating`]); a [`sprt::Sprt`] stops a match between two players once it is decided. In games
//! with rewards [`returns::play`] plays evaluation episodes; the mean return has a confidence interval. Environments
//! outside this process [run](outside::play) in separate Python processes. A [`notation::Notation`] names moves like
//! the protocols of players. Start with [`contestant`].

pub mod accuracy;
pub mod alpha_beta;
pub mod contestant;
pub mod exhaustive;
pub mod gtp_engine;
pub mod ledger;
pub mod matches;
pub mod notation;
pub mod outside;
pub mod rating;
pub mod returns;
pub mod scale;
pub mod solved;
pub mod sprt;
