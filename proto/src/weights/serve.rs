use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::server::NamedService as _;
use tonic_health::ServingStatus;

use super::WeightsService;
use super::v1::weights_server::WeightsServer;
use crate::security::Security;
use crate::server::{health_and_reflection, server};

/// Connections that may be open at once: thousands of subscribers, and people who look in.
const CONNECTIONS_MAX: usize = 8_192;

/// Serves weights, health and reflection on `listener`, to those whom `security` lets in, until `drain` fires. Subscriptions end then; fetches under way
/// are finished, and whoever must not wait for them puts a deadline around this.
///
/// # Errors
/// What the transport says if it cannot serve.
pub async fn serve(
    service: WeightsService,
    security: Security,
    listener: TcpListener,
    drain: CancellationToken,
) -> Result<(), tonic::transport::Error> {
    let name = WeightsServer::<WeightsService>::NAME;
    let (reporter, health, reflection) = health_and_reflection(&[name]).await;
    let draining = drain.clone();
    let stopped = async move {
        draining.cancelled().await;
        reporter.set_service_status(name, ServingStatus::NotServing).await;
    };
    server(&security)
        .add_service(health)
        .add_service(reflection)
        .add_service(service.until(drain).into_server())
        .serve_with_incoming_shutdown(crate::incoming(listener, CONNECTIONS_MAX, security), stopped)
        .await
}

#[cfg(test)]
mod tests;
