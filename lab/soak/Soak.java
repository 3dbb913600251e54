// SPDX-License-Identifier: GPL-2.0-or-later
import java.util.Random;
import java.util.concurrent.atomic.AtomicLong;

/**
 * A JVM at work for the soak test: threads build trees whose sums are known,
 * keep some for long and most for short, and add them up again after the
 * garbage collector has moved them. Usage: Soak SECONDS THREADS
 */
public class Soak {
    static final class Node {
        final long value;
        final byte[] ballast;
        final Node left, right;

        Node(Random random, int depth) {
            value = random.nextInt();
            ballast = new byte[1 + random.nextInt(256)];
            ballast[ballast.length - 1] = (byte) value;
            left = depth > 0 ? new Node(random, depth - 1) : null;
            right = depth > 0 ? new Node(random, depth - 1) : null;
        }

        long sum() {
            if (ballast[ballast.length - 1] != (byte) value)
                throw new IllegalStateException("an array lost its last byte");
            return value + (left != null ? left.sum() : 0) + (right != null ? right.sum() : 0);
        }
    }

    public static void main(String[] args) throws Exception {
        long end = System.nanoTime() + Long.parseLong(args[0]) * 1_000_000_000L;
        Thread[] threads = new Thread[Integer.parseInt(args[1])];
        AtomicLong trees = new AtomicLong(), errors = new AtomicLong();

        for (int t = 0; t < threads.length; t++) {
            int seed = t;
            threads[t] = new Thread(() -> {
                Random random = new Random(seed);
                Node[] kept = new Node[64];
                long[] sums = new long[kept.length];

                while (System.nanoTime() < end) {
                    int i = random.nextInt(kept.length);

                    if (kept[i] != null && kept[i].sum() != sums[i])
                        errors.incrementAndGet();
                    kept[i] = new Node(random, 6 + random.nextInt(6));
                    sums[i] = kept[i].sum();
                    trees.incrementAndGet();
                }
                for (int i = 0; i < kept.length; i++)
                    if (kept[i] != null && kept[i].sum() != sums[i])
                        errors.incrementAndGet();
            });
            threads[t].setUncaughtExceptionHandler((thread, e) -> {
                e.printStackTrace();
                errors.incrementAndGet();
            });
            threads[t].start();
        }
        for (Thread thread : threads)
            thread.join();
        System.out.println(trees + " trees, " + errors + " errors");
        System.exit(errors.get() == 0 ? 0 : 1);
    }
}
