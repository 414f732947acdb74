use std::time::Duration;

use game::Action;
use tonic::Status;
use transport::{Channel, InvalidEndpoint, channel};

use super::convert::analysis::selected_from_wire;
use super::v1::inference_client::InferenceClient;
use super::{client, v1};
use crate::convert::Invalid;

/// The moves from the start position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Moves {
    /// Action numbers, in the order of play.
    Actions(Vec<Action>),
    /// Moves in the notation that players use.
    Notation(Vec<String>),
}

/// A position, and the limits of the search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchQuery {
    /// Name of the game; `None`: the served game.
    pub game: Option<String>,
    /// The moves from the start to the position.
    pub moves: Moves,
    /// Maximum number of simulations.
    pub simulations: Option<u32>,
    /// Time limit, in whole milliseconds.
    pub time: Option<Duration>,
}

/// Requests moves from an inference server, without retries.
#[derive(Debug, Clone)]
pub struct AnalysisClient {
    client: InferenceClient<Channel>,
}

/// A reason why a search request failed.
#[derive(Debug, thiserror::Error)]
pub enum AnalysisError {
    /// The server rejected the request, or the connection failed.
    #[error("the inference server rejected the call")]
    Status(#[from] Status),
    /// The response violates the protocol.
    #[error("invalid response from the inference server")]
    Answer(#[from] Invalid),
}

impl AnalysisClient {
    /// Creates a client, which connects with the first request.
    ///
    /// # Errors
    /// [`InvalidEndpoint`].
    pub fn new(endpoint: &str) -> Result<Self, InvalidEndpoint> {
        Ok(Self { client: client(channel(endpoint)?) })
    }

    /// Returns the move to play and the result of the search.
    ///
    /// # Errors
    /// [`AnalysisError`].
    pub async fn select_move(&self, query: SearchQuery) -> Result<(v1::MoveAnalysis, v1::Analysis), AnalysisError> {
        let response = self.client.clone().select_move(v1::SelectMoveRequest::from(query)).await?.into_inner();
        Ok(selected_from_wire(response)?)
    }

    /// Returns the served models with their load and the reasons for small batches. The response is for people to read,
    /// so the contents are not checked.
    ///
    /// # Errors
    /// [`AnalysisError::Status`].
    pub async fn stats(&self) -> Result<v1::StatsResponse, AnalysisError> {
        Ok(self.client.clone().stats(v1::StatsRequest {}).await?.into_inner())
    }
}
