package org.apache.spark.sql.tests // what changes schemas is private to `sql`

import java.util
import java.util.concurrent.ConcurrentHashMap

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException
import org.apache.spark.sql.connector.catalog._
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.connector.read._
import org.apache.spark.sql.connector.write._
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** Tables in the memory of this JVM that have MERGE: it reads all rows of a table, and replaces them. */
class MergeCatalog extends TableCatalog with SupportsNamespaces {
  import MergeCatalog.tables

  private var ownName = ""

  override def initialize(name: String, options: CaseInsensitiveStringMap): Unit = ownName = name
  override def name: String = ownName

  override def listTables(namespace: Array[String]): Array[Identifier] =
    tables.keySet.asScala.filter(_.namespace.sameElements(namespace)).toArray
  override def loadTable(ident: Identifier): Table =
    Option(tables.get(ident)).getOrElse(throw new NoSuchTableException(ident))
  override def createTable(
      ident: Identifier,
      columns: Array[Column],
      partitions: Array[Transform],
      properties: util.Map[String, String]): Table = {
    tables.put(ident, new MergeTable(ident.toString, columns, properties, Seq.empty))
    loadTable(ident)
  }
  override def alterTable(ident: Identifier, changes: TableChange*): Table = {
    val old = tables.get(ident)
    val schema = CatalogV2Util.applySchemaChanges(old.schema, changes, None, "ALTER TABLE")
    val properties = CatalogV2Util.applyPropertiesChanges(old.properties, changes)
    require(schema.take(old.schema.length) == old.schema.toSeq, s"columns are only added: $changes")
    val added = Seq.fill(schema.length - old.schema.length)(null)
    val rows = old.rows.map(row => InternalRow.fromSeq(row.toSeq(old.schema) ++ added))
    tables.put(ident, new MergeTable(old.name, CatalogV2Util.structTypeToV2Columns(schema), properties, rows))
    loadTable(ident)
  }
  override def dropTable(ident: Identifier): Boolean = tables.remove(ident) != null
  override def renameTable(from: Identifier, to: Identifier): Unit = throw new UnsupportedOperationException

  override def listNamespaces: Array[Array[String]] = Array(Array("default"))
  override def listNamespaces(namespace: Array[String]): Array[Array[String]] = Array.empty
  override def loadNamespaceMetadata(namespace: Array[String]): util.Map[String, String] = util.Map.of()
  override def createNamespace(namespace: Array[String], metadata: util.Map[String, String]): Unit =
    throw new UnsupportedOperationException
  override def alterNamespace(namespace: Array[String], changes: NamespaceChange*): Unit =
    throw new UnsupportedOperationException
  override def dropNamespace(namespace: Array[String], cascade: Boolean): Boolean =
    throw new UnsupportedOperationException
}

/** Each query of a pipeline has a session of its own, and so a catalog; all have these tables. */
object MergeCatalog {
  val tables = new ConcurrentHashMap[Identifier, MergeTable]
}

class MergeTable(
    override val name: String,
    override val columns: Array[Column],
    override val properties: util.Map[String, String],
    @volatile var rows: Seq[InternalRow])
    extends Table with SupportsRead with SupportsWrite with SupportsRowLevelOperations {

  override def schema: StructType = CatalogV2Util.v2ColumnsToStructType(columns)
  override def capabilities: util.Set[TableCapability] =
    util.Set.of(TableCapability.BATCH_READ, TableCapability.BATCH_WRITE)

  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder = () => new MergeScan(schema, rows)
  override def newWriteBuilder(info: LogicalWriteInfo): WriteBuilder = builderOf(replaces = false)
  override def newRowLevelOperationBuilder(info: RowLevelOperationInfo): RowLevelOperationBuilder =
    () => new RowLevelOperation {
      override def command: RowLevelOperation.Command = info.command
      override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder =
        MergeTable.this.newScanBuilder(options)
      override def newWriteBuilder(info: LogicalWriteInfo): WriteBuilder = builderOf(replaces = true)
    }

  private def builderOf(replaces: Boolean): WriteBuilder = new WriteBuilder {
    override def build(): Write = new Write {
      override def toBatch: BatchWrite = new BatchWrite {
        override def createBatchWriterFactory(info: PhysicalWriteInfo): DataWriterFactory = (_, _) => new MergeWriter
        override def abort(messages: Array[WriterCommitMessage]): Unit = ()
        override def commit(messages: Array[WriterCommitMessage]): Unit = {
          val written = messages.toSeq.flatMap(_.asInstanceOf[Written].rows)
          rows = if (replaces) written else rows ++ written
        }
      }
    }
  }
}

case class Written(rows: Seq[InternalRow]) extends WriterCommitMessage

class MergeWriter extends DataWriter[InternalRow] {
  private val rows = Seq.newBuilder[InternalRow]
  override def write(row: InternalRow): Unit = rows += row.copy()
  override def commit(): WriterCommitMessage = Written(rows.result())
  override def abort(): Unit = ()
  override def close(): Unit = ()
}

case class AllRows(rows: Seq[InternalRow]) extends InputPartition

class MergeScan(override val readSchema: StructType, rows: Seq[InternalRow]) extends Scan with Batch {
  override def toBatch: Batch = this
  override def planInputPartitions(): Array[InputPartition] = Array(AllRows(rows))
  override def createReaderFactory(): PartitionReaderFactory = part => new PartitionReader[InternalRow] {
    private val left = part.asInstanceOf[AllRows].rows.iterator
    private var row: InternalRow = _
    override def next(): Boolean = left.hasNext && { row = left.next(); true }
    override def get(): InternalRow = row
    override def close(): Unit = ()
  }
}
