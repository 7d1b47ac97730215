package com.google.cloud.pubsub.testing.v1;

import com.google.cloud.iam.testing.v1.shared.authorization.NoopAuthorizationHelper;
import com.google.cloud.iam.testing.v1.shared.internalapi.UnimplementedIamInternalService;
import com.google.pubsub.v1.PublishRequest;
import com.google.pubsub.v1.PublishResponse;
import com.google.pubsub.v1.Subscription;
import io.gapi.emulators.grpc.GrpcServer;
import io.gapi.emulators.netty.OkHandler;
import io.grpc.StatusException;
import java.util.Set;
import java.util.concurrent.locks.Lock;
import java.util.concurrent.locks.ReadWriteLock;
import java.util.concurrent.locks.ReentrantReadWriteLock;

/**
 * Google's Pub/Sub emulator, in which a new subscription gets what its topic has kept and only then hears of what is
 * published. What came in between reached every other subscription and never this one. Here nothing comes in between.
 */
final class Launcher extends FakePubsubServer {
  private final ReadWriteLock lock = new ReentrantReadWriteLock();

  private Launcher() {
    super(Set.of(), new UnimplementedIamInternalService(), new NoopAuthorizationHelper());
  }

  @Override
  public PublishResponse publish(PublishRequest request) throws StatusException {
    return held(lock.readLock(), () -> super.publish(request));
  }

  @Override
  public Subscription createSubscription(Subscription subscription) throws StatusException {
    return held(lock.writeLock(), () -> super.createSubscription(subscription));
  }

  private static <T> T held(Lock lock, Call<T> call) throws StatusException {
    lock.lock();
    try {
      return call.answer();
    } finally {
      lock.unlock();
    }
  }

  private interface Call<T> {
    T answer() throws StatusException;
  }

  public static void main(String[] arguments) throws Exception {
    Launcher pubsub = new Launcher();
    PubsubGrpcServerAdapter adapter = new PubsubGrpcServerAdapter(pubsub, pubsub, pubsub, pubsub);
    GrpcServer server = PubsubGrpcServerAdapter.build("127.0.0.1", Integer.parseInt(arguments[0]), adapter);
    server.addHttpHandler(new OkHandler("/"));
    server.start();
    server.awaitTerminated();
  }
}
