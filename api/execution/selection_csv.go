package execution

import (
	"bytes"
	"encoding/csv"
	"strconv"

	"berth/api/handler"
	"berth/api/wire"
)

// csvColumns are the columns of a GPU selection as text/csv, in their order:
// new ones go to the end. A value that is unknown is an empty field.
func csvColumns() []string {
	return []string{
		"gpu_type", "hardware_profile", "status", "status_details", "node",
		"duration_s", "credits", "credits_spent", "runs", "score", "pareto", "recommended",
		"stopped_early", "predicted_s", "return_code",
		"gpu_utilization_percent", "gpu_memory_mib", "peak_memory_mib", "power_watt", "energy_joule", "simulated",
		"execution_id", "detail",
	}
}

// selectionCSV returns a GPU selection as a table: a header, and a line per
// GPU type.
func selectionCSV(s wire.Selection) ([]byte, error) {
	var out bytes.Buffer
	w := csv.NewWriter(&out)
	if err := w.Write(csvColumns()); err != nil {
		return nil, err
	}
	for _, row := range s.Rows {
		recommended := s.Recommendation != nil && *s.Recommendation == row.HardwareProfile
		err := w.Write([]string{
			row.GPUType, row.HardwareProfile, row.Status.String(), field(row.StatusDetails, plain),
			field(row.Node, handler.TableText), field(row.Duration, handler.TableNumber),
			field(row.Credits, stringer), row.CreditsSpent.String(), strconv.Itoa(len(row.Runs)),
			field(row.Score, handler.TableNumber), strconv.FormatBool(row.Pareto), strconv.FormatBool(recommended),
			strconv.FormatBool(row.StoppedEarly), field(row.Predicted, handler.TableNumber), field(row.ReturnCode, strconv.Itoa),
			field(row.GPUUtilPercent, strconv.Itoa), field(row.GPUMemoryMiB, integer), field(row.PeakMemoryMiB, integer),
			field(row.PowerWatt, handler.TableNumber), field(row.EnergyJoule, handler.TableNumber),
			strconv.FormatBool(row.Simulated),
			row.ExecutionID.String(), field(row.Detail, handler.TableText),
		})
		if err != nil {
			return nil, err
		}
	}
	w.Flush()
	return out.Bytes(), w.Error()
}

// field returns a value as text, "" for none.
func field[T any](value *T, format func(T) string) string {
	if value == nil {
		return ""
	}
	return format(*value)
}

func plain(s string) string { return s }

func integer(n int64) string { return strconv.FormatInt(n, 10) }

func stringer[T interface{ String() string }](v T) string { return v.String() }
