"""How a search block says its space: values of an axis in words."""
