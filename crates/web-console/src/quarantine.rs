//! Quarantines and releases stored games of one trajectory or one actor. Start with [`change`].

use proto::replay::{Quarantine, Suspect};

use crate::problem::Problem;
use crate::replay_game::{address_of, id_in};
use crate::replay_servers::{Servers, within};
use crate::site::Site;
use crate::visitors::Form;

/// Path of the form.
pub(crate) const PATH: &str = "/replay/quarantine";

/// Makes the change of a confirmed form, and returns the address of the page that shows it.
pub(crate) async fn change(site: &Site, visitor: &str, form: &Form) -> Result<String, Problem> {
    let id = id_in(form)?;
    let suspect = match form.text("suspect") {
        "game" => Suspect::Trajectory(id),
        "actor" => Suspect::Actor(id.actor),
        other => return Err(Problem::invalid(format!("`{other}` is neither a game nor an actor."))),
    };
    form.confirmed()?;
    let servers = Servers::of(site, form.text("server")).await?;
    let change = form.text("change");
    let positions = match change {
        "quarantine" => {
            let reason = match form.text("reason") {
                "" => format!("{visitor} in the console"),
                text => format!("{visitor} in the console: {text}"),
            };
            within(servers.inspector.quarantine(Quarantine { suspect, reason })).await?
        }
        "release" => within(servers.inspector.release(suspect)).await?,
        other => return Err(Problem::invalid(format!("`{other}` is neither a quarantine nor a release."))),
    };
    tracing::info!(visitor, change, ?suspect, positions, "a visitor changed the quarantine");
    Ok(address_of(id, &servers.name, None))
}
