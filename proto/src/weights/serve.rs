use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::server::NamedService as _;
use tonic::service::Routes;
use transport::security::Security;

use super::WeightsService;
use super::v1::weights_server::WeightsServer;
use crate::learners::LearnersService;
use crate::learners::v1::learners_server::LearnersServer;
use crate::reflection::health_and_reflection;

/// Maximum number of open connections: thousands of subscribers, and a few operators.
const CONNECTIONS_MAX: usize = 8_192;

/// Serves weights, health and reflection on `listener`, and `learners` if the caller is a learner that trains in a
/// group, to clients that `security` accepts, until `drain` fires. Then subscriptions stop and fetches in progress are
/// finished. A caller that must not wait for fetches sets a deadline around this call.
///
/// # Errors
/// The transport cannot serve.
pub async fn serve(
    service: WeightsService,
    learners: Option<LearnersService>,
    security: Security,
    listener: TcpListener,
    drain: CancellationToken,
) -> Result<(), tonic::transport::Error> {
    let name = WeightsServer::<WeightsService>::NAME;
    let of_learners = learners.is_some().then_some(LearnersServer::<LearnersService>::NAME);
    let names: Vec<&str> = [name].into_iter().chain(of_learners).collect();
    let (reporter, health, reflection) = health_and_reflection(&names);
    let draining = drain.clone();
    let stopped = async move {
        draining.cancelled().await;
        reporter.set_not_serving(name);
    };
    let mut services = Routes::new(health).add_service(reflection).add_service(service.until(drain).into_server());
    if let Some(learners) = learners {
        services = services.add_service(learners.into_server());
    }
    let server = transport::server(&security);
    transport::serve(server, services, listener, CONNECTIONS_MAX, security, Box::pin(stopped)).await
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tokio::task::JoinSet;
    use tokio_util::sync::CancellationToken;
    use tonic_health::pb::HealthCheckRequest;
    use tonic_health::pb::health_check_response::ServingStatus;
    use tonic_health::pb::health_client::HealthClient;
    use tonic_reflection::pb::v1::ServerReflectionRequest;
    use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
    use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
    use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
    use transport::security::Security;

    use super::serve;
    use crate::scripted::{endpoint, within};
    use crate::weights::{Publisher, WeightsService};

    const WEIGHTS: &str = "zerofleet.weights.v1.Weights";

    /// Starts a weights server, which stops when dropped.
    async fn server() -> (String, Publisher, JoinSet<Result<(), tonic::transport::Error>>) {
        let (service, publisher) = WeightsService::new(1);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = endpoint(listener.local_addr().unwrap());
        let mut task = JoinSet::new();
        task.spawn(serve(service, None, Security::default(), listener, CancellationToken::new()));
        (endpoint, publisher, task)
    }

    #[tokio::test]
    async fn health_is_served_for_the_process_and_for_its_service() {
        let (endpoint, _publisher, _task) = server().await;
        let mut client = HealthClient::new(transport::channel(&endpoint).unwrap());
        for service in ["", WEIGHTS] {
            let request = HealthCheckRequest { service: service.into() };
            let response = within(client.check(request)).await.unwrap().into_inner();
            assert_eq!(response.status(), ServingStatus::Serving);
        }
    }

    async fn reflected(endpoint: &str, question: MessageRequest) -> MessageResponse {
        let mut client = ServerReflectionClient::new(transport::channel(endpoint).unwrap());
        let request = ServerReflectionRequest { host: String::new(), message_request: Some(question) };
        let answers = within(client.server_reflection_info(tokio_stream::once(request))).await.unwrap();
        within(answers.into_inner().message()).await.unwrap().unwrap().message_response.unwrap()
    }

    #[tokio::test]
    async fn reflection_lists_what_is_served() {
        let (endpoint, _publisher, _task) = server().await;
        let answer = reflected(&endpoint, MessageRequest::ListServices(String::new())).await;
        let MessageResponse::ListServicesResponse(services) = answer else {
            panic!("expected services, got {answer:?}")
        };
        let names = services.service.into_iter().map(|service| service.name).collect::<BTreeSet<_>>();
        let expected = ["grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection", WEIGHTS];
        assert_eq!(names, expected.map(str::to_owned).into());
    }

    #[tokio::test]
    async fn reflection_describes_the_served_services_and_their_messages() {
        let (endpoint, _publisher, _task) = server().await;
        for symbol in [WEIGHTS, "zerofleet.weights.v1.Manifest", "grpc.health.v1.Health"] {
            let answer = reflected(&endpoint, MessageRequest::FileContainingSymbol(symbol.into())).await;
            assert!(matches!(answer, MessageResponse::FileDescriptorResponse(_)), "{symbol}: {answer:?}");
        }
    }
}
