import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.hadoop.hbase.master.HMaster;
import org.apache.hadoop.hbase.thrift.ThriftServer;

/** A whole HBase in one process, with its Thrift server: master, region server and ZooKeeper in threads. */
public final class HBaseServer {
  /** Arguments: those of the Thrift server. The process ends with its standard input, so nobody leaves it behind. */
  public static void main(String[] arguments) throws Exception {
    Thread master = new Thread(() -> run(() -> HMaster.main(new String[] {"start"})), "hbase");
    master.setDaemon(true);
    master.start();
    Thread thrift = new Thread(() -> run(() -> ThriftServer.main(arguments)), "thrift");
    thrift.setDaemon(true);
    thrift.start();
    while (System.in.read() >= 0) {}
    Runtime.getRuntime().halt(0);
  }

  private interface Program {
    void run() throws Exception;
  }

  private static void run(Program program) {
    try {
      program.run();
    } catch (Exception error) {
      error.printStackTrace();
      Runtime.getRuntime().halt(1);
    }
  }
}
