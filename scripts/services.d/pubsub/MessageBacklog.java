package com.google.cloud.pubsub.testing.v1;

import java.lang.ref.WeakReference;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;

/** Only so that the class in it can be compiled; removed afterwards, for the emulator's own must be found. */
class MessageBacklog {

  /**
   * Stands before the class of this name in Google's Pub/Sub emulator, which gives each ordering key of each
   * subscription a thread that looks for expired messages once a second, and ends none, not even if the subscription is
   * deleted: after some hundred subscriptions, thousands of threads kept a core busy. Here one thread looks for all.
   */
  static class ExpireOutstandingMessagesRunnable implements Runnable {
    private static final ScheduledExecutorService ONE = Executors.newSingleThreadScheduledExecutor();

    private final WeakReference<MessageBacklog> backlog;

    ExpireOutstandingMessagesRunnable(MessageBacklog backlog) {
      this.backlog = new WeakReference<>(backlog);
      ONE.schedule(this::endItsThread, 10, TimeUnit.MILLISECONDS);
      ONE.scheduleAtFixedRate(this::expire, 1, 1, TimeUnit.SECONDS);
    }

    /** Called by the thread of its own, if that has not ended by then. */
    @Override
    public void run() {}

    private void endItsThread() {
      try {
        Field field = MessageBacklog.class.getDeclaredField("expireOutstandingMessagesExecutor");
        field.setAccessible(true);
        MessageBacklog living = backlog.get();
        ExecutorService executor = living == null ? null : (ExecutorService) field.get(living);
        if (executor != null) executor.shutdownNow();
        else if (living != null) ONE.schedule(this::endItsThread, 10, TimeUnit.MILLISECONDS); // not constructed yet
      } catch (ReflectiveOperationException error) {
        error.printStackTrace();
      }
    }

    private void expire() {
      MessageBacklog living = backlog.get();
      if (living == null) throw new IllegalStateException("nobody knows it any more"); // and it is not called again
      try {
        Method method = MessageBacklog.class.getDeclaredMethod("expireOutstandingMessages");
        method.setAccessible(true);
        method.invoke(living);
      } catch (ReflectiveOperationException error) {
        error.printStackTrace();
      }
    }
  }
}
