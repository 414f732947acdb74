use std::ops::RangeInclusive;

use experience::{Filter, WeightsVersion};
use game::{Outcome, Player};

use crate::convert::{Invalid, at_most, between, inside, invalid, name, required, table_name, wire_count};
use crate::limits::{SEARCH_PAGE_MAX, STEPS_MAX};
use crate::replay::{Found, ListOrder, SearchPage, SearchQuery, v1};

impl From<SearchQuery> for v1::SearchRequest {
    fn from(SearchQuery { table, order, filter, quarantined, cursor, limit }: SearchQuery) -> Self {
        let Filter { outcome, actor, weights_versions, plies } = filter;
        Self {
            table,
            order: order.into(),
            limit: wire_count(limit),
            cursor: cursor.unwrap_or_default(),
            outcome: outcome.map_or(v1::Outcome::Unspecified, v1::Outcome::from).into(),
            actor,
            weights_version_min: *weights_versions.start(),
            weights_version_max: Some(*weights_versions.end()).filter(|&max| max < u64::MAX),
            plies_min: *plies.start(),
            plies_max: Some(*plies.end()).filter(|&max| max < u32::MAX),
            quarantined,
        }
    }
}

impl TryFrom<v1::SearchRequest> for SearchQuery {
    type Error = Invalid;

    fn try_from(request: v1::SearchRequest) -> Result<Self, Invalid> {
        let v1::SearchRequest {
            table,
            order,
            limit,
            cursor,
            outcome,
            actor,
            weights_version_min,
            weights_version_max,
            plies_min,
            plies_max,
            quarantined,
        } = request;
        let weights_versions = weights_version_min..=weights_version_max.unwrap_or(u64::MAX);
        let plies = plies_min..=plies_max.unwrap_or(u32::MAX);
        let unknown = |_| invalid("order", format!("{order} is not a list order"));
        let filter = Filter {
            outcome: outcome_from_wire(outcome)?,
            actor,
            weights_versions: range("weights_version_max", weights_versions)?,
            plies: range("plies_max", plies)?,
        };
        Ok(Self {
            table: table_name("table", table)?,
            order: ListOrder::try_from(order).map_err(unknown)?,
            filter,
            quarantined,
            cursor: checked_cursor("cursor", cursor)?,
            limit: between("limit", limit, 1, SEARCH_PAGE_MAX)?,
        })
    }
}

impl From<SearchPage> for v1::SearchResponse {
    fn from(SearchPage { found, next }: SearchPage) -> Self {
        Self { found: found.into_iter().map(Into::into).collect(), next: next.unwrap_or_default() }
    }
}

impl TryFrom<v1::SearchResponse> for SearchPage {
    type Error = Invalid;

    fn try_from(v1::SearchResponse { found, next }: v1::SearchResponse) -> Result<Self, Invalid> {
        at_most("found", found.len(), "entries", SEARCH_PAGE_MAX)?;
        if found.is_empty() && !next.is_empty() {
            return Err(invalid("next", "follows an empty page"));
        }
        let found = found.into_iter().enumerate();
        let found = found.map(|(index, found)| found.try_into().map_err(inside(format_args!("found[{index}]"))));
        Ok(Self { found: found.collect::<Result<_, _>>()?, next: checked_cursor("next", next)? })
    }
}

impl From<Found> for v1::Found {
    fn from(found: Found) -> Self {
        let Found { id, plies, outcome, weights_version, surprise, quarantined, inserted_unix_ms, revision } = found;
        Self {
            trajectory: Some(id.into()),
            plies: wire_count(plies),
            outcome: v1::Outcome::from(outcome).into(),
            weights_version: weights_version.0,
            surprise,
            quarantined,
            inserted_unix_ms,
            revision,
        }
    }
}

impl TryFrom<v1::Found> for Found {
    type Error = Invalid;

    fn try_from(message: v1::Found) -> Result<Self, Invalid> {
        let v1::Found {
            trajectory,
            plies,
            outcome,
            weights_version,
            surprise,
            quarantined,
            inserted_unix_ms,
            revision,
        } = message;
        if let Some(surprise) = surprise.filter(|surprise| !(surprise.is_finite() && *surprise >= 0.0)) {
            return Err(invalid("surprise", format!("{surprise} is not a finite number of at least 0")));
        }
        Ok(Self {
            id: required("trajectory", trajectory)?.into(),
            plies: between("plies", plies, 0, STEPS_MAX)?,
            outcome: required("outcome", outcome_from_wire(outcome)?)?,
            weights_version: WeightsVersion(weights_version),
            surprise,
            quarantined,
            inserted_unix_ms,
            revision,
        })
    }
}

impl From<Outcome> for v1::Outcome {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Win(Player::First) => Self::FirstWins,
            Outcome::Win(Player::Second) => Self::SecondWins,
            Outcome::Draw => Self::Draw,
            Outcome::Finished => Self::Finished,
            Outcome::Truncated => Self::Truncated,
        }
    }
}

/// Converts an outcome from the wire; `None` if the outcome is unspecified.
fn outcome_from_wire(outcome: i32) -> Result<Option<Outcome>, Invalid> {
    let unknown = |_| invalid("outcome", format!("{outcome} is not an outcome"));
    Ok(match v1::Outcome::try_from(outcome).map_err(unknown)? {
        v1::Outcome::Unspecified => None,
        v1::Outcome::FirstWins => Some(Outcome::Win(Player::First)),
        v1::Outcome::SecondWins => Some(Outcome::Win(Player::Second)),
        v1::Outcome::Draw => Some(Outcome::Draw),
        v1::Outcome::Finished => Some(Outcome::Finished),
        v1::Outcome::Truncated => Some(Outcome::Truncated),
    })
}

/// Checks that the maximum of a range is not below the minimum; `field` is the name of the maximum.
fn range<N: PartialOrd + std::fmt::Display>(
    field: &str,
    range: RangeInclusive<N>,
) -> Result<RangeInclusive<N>, Invalid> {
    if range.is_empty() {
        return Err(invalid(field, format!("{} is below the minimum of {}", range.end(), range.start())));
    }
    Ok(range)
}

/// Checks the length of a cursor; an empty text stands for no cursor.
fn checked_cursor(field: &str, cursor: String) -> Result<Option<String>, Invalid> {
    if cursor.is_empty() { Ok(None) } else { name(field, cursor).map(Some) }
}
