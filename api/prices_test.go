package api_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"berth/api/wire"
	"berth/compute"
)

// TestPrices checks the price list as operators and users see it.
func TestPrices(t *testing.T) {
	w := newWorld(t)
	w.upgrade()
	w.addNode(4, "rtx_4090", "v100")
	byDefault := compute.DefaultPrice(80 << 10)
	listed := func(name string) wire.ListedPrice {
		t.Helper()
		var list wire.PriceList
		w.mustDo("GET", "/admin/prices", rootToken, nil, &list)
		i := slices.IndexFunc(list.Prices, func(p wire.ListedPrice) bool { return p.Resource == name })
		if i < 0 || list.Count != len(list.Prices) {
			t.Fatalf("no price for %s in %+v", name, list)
		}
		return list.Prices[i]
	}
	if p := listed("rtx_4090"); p.Source != compute.PriceDefault || p.MicroCredits != byDefault || p.PerHour != byDefault.PerHour() {
		t.Errorf("a type without a price: %+v", p)
	}
	if p := listed("h100"); p.Source != compute.PriceBuiltIn {
		t.Errorf("a type of the built-in list: %+v", p)
	}

	var set wire.ListedPrice
	w.mustDo("PUT", "/admin/prices/gpu.RTX_4090", rootToken, `{"price_per_hour":1.2}`, &set)
	if want := (wire.ListedPrice{Resource: "rtx_4090", MicroCredits: 333, PerHour: 1198800, Source: compute.PriceOperator}); set != want {
		t.Errorf("set %+v, want %+v", set, want)
	}
	w.mustDo("PUT", "/admin/prices/cpu", rootToken, `{"microcredits_per_second":7}`, nil)
	var types wire.MachineTypes
	w.mustDo("GET", "/machine-types", w.adaKey, nil, &types)
	sources := map[string]compute.PriceSource{}
	for _, m := range types.MachineTypes {
		sources[m.HardwareProfile] = m.PriceSource
	}
	if sources["gpu.rtx_4090"] != compute.PriceOperator || sources["gpu.v100"] != compute.PriceDefault ||
		sources["cpu"] != compute.PriceOperator || sources["gpu.h100"] != compute.PriceBuiltIn {
		t.Errorf("sources of machine types: %v", sources)
	}
	var pricing wire.Pricing
	w.mustDo("GET", "/pricing", w.adaKey, nil, &pricing)
	i := slices.IndexFunc(pricing.Prices, func(p wire.Price) bool { return p.Resource == "gpu.rtx_4090" })
	if p := pricing.Prices[i]; p.Source != compute.PriceOperator || p.UnitPricePerHour != "1.1988" {
		t.Errorf("the price of users: %+v", p)
	}

	w.mustDo("DELETE", "/admin/prices/rtx_4090", rootToken, nil, nil)
	if p := listed("rtx_4090"); p.Source != compute.PriceDefault || p.MicroCredits != byDefault {
		t.Errorf("after the removal: %+v", p)
	}
	w.want(404, "price_not_found", "DELETE", "/admin/prices/rtx_4090", rootToken, nil)
	for _, bad := range []string{
		`{}`, `{"price_per_hour":0}`, `{"price_per_hour":-1}`, `{"price_per_hour":3600001}`, `{"price_per_hour":"NaN"}`,
		`{"price_per_hour":NaN}`, `{"price_per_hour":1e300}`, `{"microcredits_per_second":0}`,
		`{"microcredits_per_second":1000000001}`, `{"microcredits_per_second":99999999999999999999}`,
		`{"microcredits_per_second":1.5}`, `{"microcredits_per_second":1,"price_per_hour":1}`,
	} {
		w.want(422, "", "PUT", "/admin/prices/t4", rootToken, bad)
	}
	for _, name := range []string{"t4.2x", "gpu.t4.500m", "cpu.2x", "a-b", "gpu", "gpu.cpu"} {
		w.want(422, "", "PUT", "/admin/prices/"+name, rootToken, `{"price_per_hour":1}`)
		w.want(422, "", "DELETE", "/admin/prices/"+name, rootToken, nil)
	}
	w.want(403, "", "PUT", "/admin/prices/t4", w.bobKey, `{"price_per_hour":1}`)
}

// TestPricesOfDeployments lists what a second of a replica costs: of each profile, and of the
// deployments of the organization alone, which keep their price when that of the profile changes.
func TestPricesOfDeployments(t *testing.T) {
	w := newWorld(t)
	w.upgrade()
	id := w.deploy()
	exact := regexp.MustCompile(`^[0-9]+(\.[0-9]{1,8})?$`)
	lines := func(key string) map[string]wire.Price {
		t.Helper()
		var pricing wire.Pricing
		w.mustDo("GET", "/pricing", key, nil, &pricing)
		found := make(map[string]wire.Price)
		for _, p := range pricing.Prices {
			if !exact.MatchString(p.UnitPrice) || !exact.MatchString(p.UnitPricePerHour) || p.Unit != "second" {
				t.Errorf("a price is %+v", p)
			}
			name := p.MeterSlug + " " + p.AppliesTo.HardwareProfile
			if p.AppliesTo.Deployment != nil {
				name += p.AppliesTo.Deployment.String()
			}
			if _, twice := found[name]; twice {
				t.Errorf("%s has two prices", name)
			}
			found[name] = p
		}
		if pricing.Count != len(pricing.Prices) {
			t.Errorf("%d prices are counted as %d", len(pricing.Prices), pricing.Count)
		}
		return found
	}
	before := lines(w.adaKey)
	w.mustDo("PUT", "/admin/prices/cpu", rootToken, `{"microcredits_per_second":77}`, nil)
	after, foreign := lines(w.adaKey), lines(w.bobKey)
	for name, p := range after {
		profile, is := strings.CutPrefix(name, "run_running ")
		if !is {
			continue
		}
		replica := after["deployment_running "+profile]
		if replica.MeterSlug = p.MeterSlug; replica != p {
			t.Errorf("an execution costs %+v, and a replica %+v", p, replica)
		}
	}
	own := "deployment_running " + id.String()
	p, was := after[own], before["deployment_running cpu"]
	if p.Resource != "cpu" || p.UnitPrice == "" || p.UnitPrice != was.UnitPrice || p.UnitPricePerHour != was.UnitPricePerHour ||
		p.UnitPrice == after["deployment_running cpu"].UnitPrice {
		t.Errorf("a replica of the deployment costs %+v, when it was created of its profile %+v", p, was)
	}
	if p, ok := foreign[own]; ok || len(foreign) != len(after)-1 {
		t.Errorf("another organization sees %+v", p)
	}
}

// TestBillingModeOfTheAPI checks that an operator turns the enforcement of
// credits on and off.
func TestBillingModeOfTheAPI(t *testing.T) {
	w := newWorld(t)
	w.upgrade()
	var mode wire.BillingMode
	for _, want := range []string{"meter", "enforce"} {
		w.mustDo("PUT", "/admin/billing/mode", rootToken, `{"mode":"`+want+`"}`, &mode)
		var got wire.BillingMode
		w.mustDo("GET", "/admin/billing/mode", rootToken, nil, &got)
		if mode.Mode != want || got.Mode != want {
			t.Errorf("set %+v, read %+v, want %s", mode, got, want)
		}
		start := map[string]any{"code": "1", "execution_type": "h100", "timeout": 600}
		if want == "meter" {
			for range 400 { // Far beyond the grant.
				w.mustDo("POST", "/execution/streaming/start", w.bobKey, start, nil)
			}
			continue
		}
		w.want(403, "credits_exhausted", "POST", "/execution/streaming/start", w.bobKey, start)
	}
	w.want(422, "", "PUT", "/admin/billing/mode", rootToken, `{"mode":"free"}`)
	w.want(422, "", "PUT", "/admin/billing/mode", rootToken, `{}`)
	w.want(403, "", "PUT", "/admin/billing/mode", w.bobKey, `{"mode":"meter"}`)
}
