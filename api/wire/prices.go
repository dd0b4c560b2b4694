//nolint:lll // A field and its rules are one line.
package wire

import "berth/compute"

// NewPrice is the body of PUT /admin/prices/{resource}: one of its fields.
type NewPrice struct {
	MicroCredits *int            `json:"microcredits_per_second" min:"1" max:"1000000000" doc:"Millionths of a credit per second."`
	PerHour      compute.Credits `json:"price_per_hour" gt:"0" max:"3600000" doc:"Credits per hour, with at most six decimals; rounded to whole micro-credits per second."`
	Cost         compute.Credits `json:"cost" gt:"0" max:"3600000" doc:"Cost for the operator, in credits per hour: provider_billed of executions follows from it. A cost that was set before stays without it, until the price is withdrawn."`
}

// Check holds the rules that tags cannot say.
func (p *NewPrice) Check(f *Faults) {
	if p.Cost > 0 {
		if _, err := compute.PriceOf(p.Cost); err != nil {
			f.Value(err.Error(), "body", "cost")
		}
	}
	if (p.MicroCredits == nil) == (p.PerHour == 0) && !f.has("price_per_hour") {
		f.Value("give either price_per_hour, in credits, or microcredits_per_second", "body")
		return
	}
	if p.PerHour > 0 {
		if _, err := compute.PriceOf(p.PerHour); err != nil {
			f.Value(err.Error(), "body", "price_per_hour")
		}
	}
}

// Price returns the price per second. The body has been checked.
func (p *NewPrice) Price() compute.Price {
	if p.MicroCredits != nil {
		return compute.Price(*p.MicroCredits)
	}
	price, err := compute.PriceOf(p.PerHour)
	if err != nil {
		return compute.MaxPrice
	}
	return price
}

// Costs returns the cost per second of a resource, nil to keep it.
func (p *NewPrice) Costs(resource string) map[string]compute.Price {
	cost, err := compute.PriceOf(p.Cost)
	if err != nil {
		return nil
	}
	return map[string]compute.Price{resource: cost}
}

// ListedPrice is one line of the operator's price list.
type ListedPrice struct {
	Resource     string              `json:"resource" doc:"A GPU type, for a whole GPU, or cpu, for a vCPU."`
	MicroCredits compute.Price       `json:"microcredits_per_second"`
	PerHour      compute.Credits     `json:"price_per_hour" doc:"Credits."`
	Source       compute.PriceSource `json:"source" doc:"operator, built-in, or default: derived from the memory of the type."`
	Cost         *compute.Credits    `json:"cost" doc:"Cost for the operator, in credits per hour; null where that is not known."`
}

// PriceList answers GET /admin/prices.
type PriceList struct {
	Prices []ListedPrice `json:"prices"`
	Count  int           `json:"count"`
}

// BillingMode is whether credits are enforced.
type BillingMode struct {
	Mode string `json:"mode" required:"true" enum:"enforce,meter" doc:"enforce refuses and stops work without credits; meter only counts, and balances may be negative."`
}
