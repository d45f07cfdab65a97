// SPDX-License-Identifier: Apache-2.0

// Package dashboard makes the Grafana dashboard of deploy/grafana from the metrics.
// Nothing of it is in the program: tests write the file and try it.
package dashboard

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/statetimeline"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"

	"github.com/jeoul/jeoul/internal/balancer/metrics"
)

// query is an expression of PromQL, and the name of its series in the legend. In it stand the dashboard's variables
// $instance and $service, each a regular expression, and Grafana's $__rate_interval.
type query struct {
	expression, legend string
	// unit is the unit of the column of a listed figure.
	unit string
	// needs names the feature that a balancer must use for data to be there, where the figure does not say it.
	needs string
}

// figure is a panel.
type figure struct {
	title, about string
	kind         kind
	// unit is one of Grafana's: pps, bps, ops, percentunit, s, bytes, short.
	unit    string
	queries []query
	// needs names the feature that a balancer must use for data to be there; empty: that of its row.
	needs string
}

type kind uint8

const (
	// series draws each series as a line over time.
	series kind = iota
	// present shows the last values as numbers.
	present
	// states draws a band for each backend, coloured by its state.
	states
	// listed is a table: a row for each set of labels, a column for each query, which its legend names.
	listed
)

// row is a headline with the figures below it.
type row struct {
	title string
	// needs names the feature that a balancer must use for data to be there; empty: none. Such a row is collapsed.
	needs   string
	figures []figure
}

// Panels are 24 units wide in all; Grafana asks for no more than that a row's add up to it.
const (
	width, height     = 8, 8
	narrow, low       = 4, 4
	statesWidth       = 24
	dashboardUID      = "jeoul"
	refreshed         = "10s"
	datasourceName    = "datasource"
	anyInstance       = `instance=~"$instance"`
	ofServices        = anyInstance + `, service=~"$service"`
	perBackend        = "{{service}}/{{backend}}"
	perInstance       = "{{instance}}"
	perService        = "{{service}}"
	rateOfBackends    = `sum by (service, backend) (rate(%s{` + ofServices + `}[$__rate_interval]))`
	greatestOfBackend = `max by (service, backend) (%s{` + ofServices + `})`
)

// Marshal returns the dashboard as JSON, as Grafana imports and provisions it.
func Marshal() ([]byte, error) {
	built, err := build()
	if err != nil {
		return nil, fmt.Errorf("making the dashboard: %v", err)
	}
	text, err := json.MarshalIndent(built, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("writing the dashboard: %v", err)
	}
	return append(text, '\n'), nil
}

// Expression is an expression of the dashboard, in PromQL, with its variables replaced.
type Expression struct {
	Text string
	// Needs names the feature that a balancer must use for data to be there; empty: none.
	Needs string
	// Mark: it is an annotation's, which has data when something happens.
	Mark bool
}

// Expressions returns every expression of the dashboard, of all instances and services, and with rates over the given
// time,
// as PromQL writes it (5s).
func Expressions(over string) (all []Expression) {
	replace := strings.NewReplacer("$instance", ".*", "$service", ".*", "$__rate_interval", over)
	for _, r := range rows() {
		for _, f := range r.figures {
			for _, q := range f.queries {
				all = append(all, Expression{Text: replace.Replace(q.expression),
					Needs: cmp.Or(q.needs, f.needs, r.needs)})
			}
		}
	}
	for _, a := range annotations() {
		all = append(all, Expression{Text: replace.Replace(a.expression), Mark: true})
	}
	return all
}

// build makes it by the schema that every Grafana imports.
//
//lint:ignore SA1019 what is preferred to it, dashboardv2, takes Grafana 12
func build() (dashboard.Dashboard, error) {
	//lint:ignore SA1019 see above
	builder := dashboard.NewDashboardBuilder("Jeoul").Uid(dashboardUID).Tags([]string{"jeoul"}).
		Description("Balancers that Prometheus scrapes: traffic, outcomes of packets, backends, tables.").
		Time("now-1h", "now").Refresh(refreshed).Tooltip(dashboard.DashboardCursorSyncCrosshair).
		WithVariable(dashboard.NewDatasourceVariableBuilder(datasourceName).Label("Prometheus").Type("prometheus")).
		WithVariable(multiVariable("instance", "Balancer", "label_values(jeoul_build_info, instance)")).
		WithVariable(multiVariable("service", "Service", `label_values(jeoul_service_info{`+anyInstance+`}, service)`))
	annotate(builder)
	id := uint32(0)
	next := func() uint32 { id++; return id }
	for _, r := range rows() {
		head := dashboard.NewRowBuilder(r.title).Id(next())
		if r.needs == "" {
			builder.WithRow(head)
			for _, f := range r.figures {
				builder.WithPanel(f.panel(next()))
			}
			continue
		}
		for _, f := range r.figures {
			head.WithPanel(f.panel(next()))
		}
		builder.WithRow(head.Collapsed(true))
	}
	return builder.Build()
}

// multiVariable is a dashboard variable with multiple selection.
func multiVariable(name, label, values string) *dashboard.QueryVariableBuilder {
	return dashboard.NewQueryVariableBuilder(name).Label(label).Query(dashboard.StringOrMap{String: &values}).
		Datasource(source()).Refresh(dashboard.VariableRefreshOnTimeRangeChanged).Multi(true).IncludeAll(true).AllValue(
		".*")
}

// source is the Prometheus that a person chooses at the head of the dashboard.
func source() common.DataSourceRef {
	kind, uid := "prometheus", "${"+datasourceName+"}"
	return common.DataSourceRef{Type: &kind, Uid: &uid}
}

// panel makes the panel; id tells it from the others of the dashboard.
func (f figure) panel(id uint32) cog.Builder[dashboard.Panel] {
	switch f.kind {
	case present:
		return f.numbers(id)
	case states:
		return f.bands(id)
	case listed:
		return f.list(id)
	}
	return f.lines(id)
}

func (f figure) lines(id uint32) cog.Builder[dashboard.Panel] {
	panel := timeseries.NewPanelBuilder().Id(id).Title(f.title).Description(f.about).Datasource(source()).Unit(f.unit).
		Span(width).Height(height).Min(0).FillOpacity(10).
		Tooltip(common.NewVizTooltipOptionsBuilder().
			Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderDescending)).
		Legend(common.NewVizLegendOptionsBuilder().ShowLegend(true).
			DisplayMode(common.LegendDisplayModeList).Placement(common.LegendPlacementBottom))
	for _, target := range f.targets() {
		panel.WithTarget(target)
	}
	return panel
}

func (f figure) numbers(id uint32) cog.Builder[dashboard.Panel] {
	panel := stat.NewPanelBuilder().Id(id).Title(f.title).Description(f.about).Datasource(source()).Unit(f.unit).
		Span(narrow).Height(low).GraphMode(common.BigValueGraphModeArea)
	for _, target := range f.targets() {
		panel.WithTarget(target)
	}
	return panel
}

func (f figure) bands(id uint32) cog.Builder[dashboard.Panel] {
	panel := statetimeline.NewPanelBuilder().Id(id).Title(f.title).Description(f.about).Datasource(source()).
		Span(statesWidth).
		Height(height).
		MergeValues(true).ShowValue(common.VisibilityModeNever).Mappings([]dashboard.ValueMapping{stateNames()})
	for _, target := range f.targets() {
		panel.WithTarget(target)
	}
	return panel
}

// list makes a table. Its queries are of one moment, and have the same labels.
func (f figure) list(id uint32) cog.Builder[dashboard.Panel] {
	renamed := map[string]string{}
	panel := table.NewPanelBuilder().
		Id(id).
		Title(f.title).
		Description(f.about).
		Datasource(source()).
		Span(statesWidth).
		Height(height).
		Footer(common.NewTableFooterOptionsBuilder().Show(false).Reducer([]string{}))
	for i, q := range f.queries {
		ref := string(rune('A' + i))
		renamed["Value #"+ref] = q.legend
		panel.WithTarget(prometheus.NewDataqueryBuilder().Datasource(source()).RefId(ref).Expr(q.expression).
			Format(prometheus.PromQueryFormatTable).Instant())
		panel.OverrideByName("Value #"+ref, []dashboard.DynamicConfigValue{{Id: "unit", Value: q.unit}})
		panel.OverrideByName(q.legend, []dashboard.DynamicConfigValue{{Id: "unit", Value: q.unit}})
	}
	return panel.WithTransformation(dashboard.DataTransformerConfig{Id: "merge", Options: map[string]any{}}).
		WithTransformation(dashboard.DataTransformerConfig{Id: "organize", Options: map[string]any{
			"excludeByName": map[string]bool{"Time": true}, "renameByName": renamed}})
}

func (f figure) targets() (targets []*prometheus.DataqueryBuilder) {
	for i, q := range f.queries {
		targets = append(targets, prometheus.NewDataqueryBuilder().Datasource(source()).
			RefId(string(rune('A'+i))).Expr(q.expression).LegendFormat(q.legend).Range())
	}
	return targets
}

// stateNames maps the numbers of jeoul_backend_state to words and colours: green takes new flows, red cannot, and
// states that an operator or the configuration wants are in between.
func stateNames() dashboard.ValueMapping {
	colours := map[string]string{
		"up":       "green",
		"standby":  "blue",
		"draining": "yellow",
		"weight-0": "yellow",
		"out":      "orange",
		"ejected":  "orange",
	}
	names := map[string]dashboard.ValueMappingResult{}
	for i, state := range metrics.BackendStates() {
		name, colour := string(state), "red"
		if c, ok := colours[name]; ok {
			colour = c
		}
		at := int32(i)
		names[strconv.Itoa(i)] = dashboard.ValueMappingResult{Text: &name, Color: &colour, Index: &at}
	}
	return dashboard.ValueMapping{ValueMap: &dashboard.ValueMap{Type: dashboard.MappingTypeValueToText, Options: names}}
}
