package skipstone;

import java.io.ByteArrayInputStream;
import java.nio.channels.Channels;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskContext$;
import org.apache.spark.TaskContextImpl;
import org.apache.spark.executor.TaskMetrics;
import org.apache.spark.memory.TaskMemoryManager;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.PlanExpression;
import org.apache.spark.sql.catalyst.expressions.UserDefinedExpression;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.Dataset$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.classic.SparkSession$;
import org.apache.spark.sql.execution.LocalTableScanExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec;
import org.apache.spark.sql.execution.arrow.ArrowConverters$;
import scala.Option;
import scala.collection.Iterator;
import scala.collection.mutable.ArrayBuffer;

/**
 * Takes few rows into a plan by one call, and runs the physical plan of a query over them in the thread that asks: what
 * Spark's operators do with them takes less time than a job takes to start.
 *
 * <p>Compiled as {@code PlanOutline} is: no generics, no lambdas.
 */
public class FewRows {
  /** Operators that give the rows of one task from the rows of one task, and take no other thread or process. */
  private static final Set OPERATORS =
      new HashSet(
          Arrays.asList(
              new Object[] {
                "CoalesceExec",
                "FilterExec",
                "HashAggregateExec",
                "InputAdapter",
                "LocalTableScanExec",
                "ObjectHashAggregateExec",
                "ProjectExec",
                "SortAggregateExec",
                "SortExec",
                "WholeStageCodegenExec"
              }));

  /** What is written by people may take any time, and do anything. */
  private static final String[] FOREIGN = {"Invoke", "TypedAggregate", "Aggregator", "ScalaUDAF", "CallMethod"};

  /** No task of Spark has such a number. */
  private static final AtomicLong TASKS = new AtomicLong(Long.MIN_VALUE);

  private final int most;

  /** {@code most}: rows that are taken so. */
  public FewRows(int most) {
    this.most = most;
  }

  /** The {@code count} rows of an Arrow stream as a relation; null where Spark makes something else of them. */
  public LogicalPlan local(SparkSession session, byte[] stream, String schema, int count) {
    if (session.sessionState().conf().arrowUseLargeVarTypes()) {
      return null;
    }
    Iterator batches =
        ArrowConverters$.MODULE$.getBatchesFromStream(Channels.newChannel(new ByteArrayInputStream(stream)));
    LogicalPlan plan = ArrowConverters$.MODULE$.toDataFrame(batches, schema, session).queryExecution().analyzed();
    return plan instanceof LocalRelation && ((LocalRelation) plan).data().size() == count ? plan : null;
  }

  /** A Dataset of the rows that {@code dataset} gives, which are in its plan; null where a job has to find them. */
  public Dataset evaluated(SparkSession session, Dataset dataset) {
    Option before = SparkSession$.MODULE$.getActiveSession();
    SparkSession$.MODULE$.setActiveSession(session);
    try {
      return found(session, dataset);
    } finally {
      if (before.isDefined()) {
        SparkSession$.MODULE$.setActiveSession((SparkSession) before.get());
      } else {
        SparkSession$.MODULE$.clearActiveSession();
      }
    }
  }

  private Dataset found(SparkSession session, Dataset dataset) {
    SparkPlan plan = dataset.queryExecution().executedPlan();
    if (plan instanceof AdaptiveSparkPlanExec && isHere(((AdaptiveSparkPlanExec) plan).initialPlan())) {
      plan = ((AdaptiveSparkPlanExec) plan).finalPhysicalPlan(); // without an exchange there is no stage to wait for
    }
    if (plan instanceof LocalTableScanExec || TaskContext.get() != null || !isHere(plan)) {
      return null;
    }
    RDD rows = plan.execute();
    if (rows.getNumPartitions() != 1) {
      return null;
    }
    LocalRelation local =
        new LocalRelation(
            dataset.queryExecution().analyzed().output(), taken(session, rows).toSeq(), false, Option.empty());
    return Dataset$.MODULE$.ofRows(session, local);
  }

  private boolean isHere(SparkPlan plan) {
    String name = plan.getClass().getName();
    if (!OPERATORS.contains(name.substring(name.lastIndexOf('.') + 1))) {
      return false;
    }
    if (plan instanceof LocalTableScanExec && ((LocalTableScanExec) plan).rows().size() > most) {
      return false;
    }
    for (int at = 0; at < plan.expressions().size(); at++) {
      if (!isOurs((Expression) plan.expressions().apply(at))) {
        return false;
      }
    }
    for (int at = 0; at < plan.children().size(); at++) {
      if (!isHere((SparkPlan) plan.children().apply(at))) {
        return false;
      }
    }
    return true;
  }

  private static boolean isOurs(Expression node) {
    if (!node.deterministic() || node instanceof PlanExpression || node instanceof UserDefinedExpression) {
      return false;
    }
    String name = node.getClass().getSimpleName();
    for (int at = 0; at < FOREIGN.length; at++) {
      if (name.indexOf(FOREIGN[at]) >= 0) {
        return false;
      }
    }
    for (int at = 0; at < node.children().size(); at++) {
      if (!isOurs((Expression) node.children().apply(at))) {
        return false;
      }
    }
    return true;
  }

  /** The rows of the one partition, taken as a task takes them: operators ask the task for memory. */
  private static ArrayBuffer taken(SparkSession session, RDD rows) {
    SparkEnv env = SparkEnv.get();
    long task = TASKS.getAndIncrement();
    TaskMemoryManager memory = new TaskMemoryManager(env.memoryManager(), task);
    TaskContextImpl context =
        new TaskContextImpl(
            0,
            0,
            0,
            task,
            0,
            1,
            memory,
            settings(session),
            env.metricsSystem(),
            TaskMetrics.empty(),
            1,
            scala.collection.immutable.Map$.MODULE$.empty());
    TaskContext$.MODULE$.setTaskContext(context);
    Option error = Option.empty();
    try {
      ArrayBuffer taken = new ArrayBuffer();
      Iterator iterator = rows.iterator(rows.partitions()[0], context);
      while (iterator.hasNext()) {
        taken.addOne(((InternalRow) iterator.next()).copy());
      }
      return taken;
    } catch (RuntimeException failed) {
      error = Option.apply(failed);
      throw failed;
    } finally {
      try {
        context.markTaskCompleted(error);
      } finally {
        memory.cleanUpAllAllocatedMemory();
        env.memoryManager().releaseAllExecutionMemoryForTask(task);
        TaskContext$.MODULE$.unset();
      }
    }
  }

  /** The settings that a task of the session would have: expressions read some of them when they are evaluated. */
  private static Properties settings(SparkSession session) {
    Properties settings = new Properties();
    Map all = session.conf().getAllAsJava();
    for (Object entry : all.entrySet()) {
      String name = (String) ((Map.Entry) entry).getKey();
      if (name.startsWith("spark")) {
        settings.setProperty(name, (String) ((Map.Entry) entry).getValue());
      }
    }
    return settings;
  }
}
