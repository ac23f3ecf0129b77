// Tables that iceberg-go writes, in a catalog of folders: icebergo ROOT.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"os"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/catalog"
	"github.com/apache/iceberg-go/catalog/hadoop"
	"github.com/apache/iceberg-go/table"
)

var (
	ctx   = context.Background()
	texts = []string{
		"plain text of more than sixteen characters", "日本語日本語日本語日本語日本語日本語",
		"\U0001f600\U0001f601 emoji beyond the basic plane \U0001f602", "O'Brien, \"quoted\" and 100% like_this",
	}
	floats = []float64{math.NaN(), math.Copysign(0, -1), math.Inf(1), math.Inf(-1), 0}
	lake   *hadoop.Catalog
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func fields() []iceberg.NestedField {
	return []iceberg.NestedField{
		{ID: 1, Name: "id", Type: iceberg.PrimitiveTypes.Int64},
		{ID: 2, Name: "txt", Type: iceberg.PrimitiveTypes.String},
		{ID: 3, Name: "cat", Type: iceberg.PrimitiveTypes.String},
		{ID: 4, Name: "amount", Type: iceberg.DecimalTypeOf(9, 2)},
		{ID: 5, Name: "price", Type: iceberg.PrimitiveTypes.Float64},
		{ID: 6, Name: "day", Type: iceberg.PrimitiveTypes.Date},
		{ID: 7, Name: "ts", Type: iceberg.PrimitiveTypes.Timestamp},
		{ID: 8, Name: "flag", Type: iceberg.PrimitiveTypes.Bool},
		{ID: 9, Name: "n", Type: iceberg.PrimitiveTypes.Int32},
	}
}

// given makes 60 rows with ids from start on, under the table's present schema.
func given(t *table.Table, start int) arrow.Table {
	schema := must(table.SchemaToArrowSchema(t.Schema(), nil, true, false))
	builder := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	for number := start; number < start+60; number++ {
		for at, field := range schema.Fields() {
			put(builder.Field(at), field.Name, number)
		}
	}
	return array.NewTableFromRecords(schema, []arrow.RecordBatch{builder.NewRecordBatch()})
}

func put(builder array.Builder, name string, number int) {
	nothing := number%11 == 5
	switch {
	case nothing && (name == "txt" || name == "amount" || name == "day"):
		builder.AppendNull()
		return
	}
	switch one := builder.(type) {
	case *array.Int64Builder:
		one.Append(map[bool]int64{true: int64(number), false: int64(number) * 3}[name == "id"])
	case *array.Int32Builder:
		one.Append(int32(number) * 3)
	case *array.Decimal128Builder:
		one.Append(decimal128.FromI64(int64(number)*7 - 100))
	case *array.Float64Builder:
		one.Append(append(append([]float64{}, floats...), make([]float64, 8)...)[number%13] + map[bool]float64{true: float64(number) / 8}[number%13 >= len(floats)])
	case *array.Date32Builder:
		one.Append(arrow.Date32(number - 31))
	case *array.TimestampBuilder:
		one.Append(arrow.Timestamp((int64(number)*7-168)*3_600_000_000 + int64(number)))
	case *array.BooleanBuilder:
		one.Append(number%2 == 0)
	case *array.StringBuilder:
		switch name {
		case "txt":
			one.Append(fmt.Sprintf("%s %d", texts[number%4], number))
		case "extra":
			one.Append("more")
		default:
			one.Append(fmt.Sprintf("c%d", number%5))
		}
	default:
		builder.AppendNull()
	}
}

func create(name string, properties iceberg.Properties, by ...iceberg.PartitionField) *table.Table {
	spec := iceberg.NewPartitionSpec(by...)
	return must(lake.CreateTable(ctx, table.Identifier{"ns", name}, iceberg.NewSchema(0, fields()...),
		catalog.WithPartitionSpec(&spec), catalog.WithProperties(properties)))
}

func add(t *table.Table, start int) *table.Table {
	return must(t.AppendTable(ctx, given(t, start), 1024, nil))
}

func among(ids ...int64) iceberg.BooleanExpression {
	return iceberg.IsIn(iceberg.Reference("id"), ids...)
}

func attempt(name string, write func() (*table.Table, int)) {
	told := map[string]any{"case": name}
	defer func() {
		if problem := recover(); problem != nil {
			told["refused"] = fmt.Sprint(problem)
		}
		line := must(json.Marshal(told))
		fmt.Println(`{"case": ` + string(line[len(`{"case":`):]))
	}()
	t, rows := write()
	told["metadata"], told["rows"] = t.MetadataLocation(), rows
}

func written(name string, properties iceberg.Properties, by ...iceberg.PartitionField) (*table.Table, int) {
	t := add(add(create(name, properties, by...), 0), 60)
	t = must(t.Delete(ctx, among(3, 13, 63), nil))
	return must(t.Delete(ctx, among(4, 64), nil)), 115
}

func evolved() (*table.Table, int) {
	t := add(create("evolved", nil), 0)
	tx := t.NewTransaction()
	change := tx.UpdateSchema(true, false).
		AddColumn([]string{"extra"}, iceberg.PrimitiveTypes.String, "", false, nil).
		RenameColumn([]string{"cat"}, "category").DeleteColumn([]string{"flag"}).
		UpdateColumn([]string{"n"}, table.ColumnUpdate{
			FieldType: iceberg.Optional[iceberg.Type]{Val: iceberg.PrimitiveTypes.Int64, Valid: true},
		})
	if err := change.Commit(); err != nil {
		panic(err)
	}
	return add(must(tx.Commit(ctx)), 60), 120
}

// equality deletes the rows of three ids by value.
func equality() (*table.Table, int) {
	t := add(add(create("equality", nil), 0), 60)
	schema := must(table.SchemaToArrowSchema(iceberg.NewSchema(0, fields()[0]), nil, true, false))
	builder := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	builder.Field(0).(*array.Int64Builder).AppendValues([]int64{7, 17, 67}, nil)
	batch := builder.NewRecordBatch()
	var records iter.Seq2[arrow.RecordBatch, error] = func(yield func(arrow.RecordBatch, error) bool) { yield(batch, nil) }
	tx := t.NewTransaction()
	if err := tx.CommitEqualityDeletes(ctx, []int{1}, records, nil); err != nil {
		panic(err)
	}
	return must(tx.Commit(ctx)), 117
}

func field(source int, transform iceberg.Transform) iceberg.PartitionField {
	return iceberg.PartitionField{SourceIDs: []int{source}, FieldID: 1000, Name: "part", Transform: transform}
}

func main() {
	lake = must(hadoop.NewCatalog("lake", os.Args[1], nil))
	if err := lake.CreateNamespace(ctx, table.Identifier{"ns"}, nil); err != nil {
		panic(err)
	}
	onRead := iceberg.Properties{"write.delete.mode": "merge-on-read"}
	attempt("copy-on-write", func() (*table.Table, int) { return written("copied", nil) })
	attempt("deletes", func() (*table.Table, int) { return written("deletes", onRead) })
	attempt("equality-deletes", equality)
	attempt("evolved", evolved)
	attempt("v3", func() (*table.Table, int) {
		return written("third", iceberg.Properties{"format-version": "3", "write.delete.mode": "merge-on-read"})
	})
	attempt("bucket", func() (*table.Table, int) {
		return written("by_bucket", onRead, field(1, iceberg.BucketTransform{NumBuckets: 4}))
	})
	attempt("truncate", func() (*table.Table, int) {
		return written("by_truncate", onRead, field(3, iceberg.TruncateTransform{Width: 2}))
	})
	attempt("year", func() (*table.Table, int) { return written("by_year", onRead, field(7, iceberg.YearTransform{})) })
}
